"""What a tensor is, before any judgement: drawn, laid out, named, placed. On driver and ranks."""
