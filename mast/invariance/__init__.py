"""What features are invariant to: measured on any encoder, chosen when it is used."""
