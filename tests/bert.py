"""A small BERT of random weights, of the real `transformers`."""

from __future__ import annotations

import torch
from torch import nn


def tiny_bert(labels: int, *, seed: int = 0, dropout: float = 0.0) -> nn.Module:
    """A classifier of sentences of up to 12 tokens out of 20, with one layer."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=labels,
    )
    torch.manual_seed(seed)
    return transformers.BertForSequenceClassification(config)
