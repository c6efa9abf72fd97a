"""`python -m campaign`."""

import sys

from campaign.frame import main

if __name__ == "__main__":
    sys.exit(main())
