"""`python -m widemargin`."""

from widemargin.cli import main

if __name__ == "__main__":
    main()
