"""What a training will need, measured on samples before it starts: memory, seconds, and what would lower them."""
