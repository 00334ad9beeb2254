"""Checks the policies that model PyTorch against PyTorch: the same memory for the same requests."""

from __future__ import annotations

from validating.comparison import validate
from validating.report import Notes, Reading, ValidationResult, load_notes

__all__ = ["Notes", "Reading", "ValidationResult", "load_notes", "validate"]
