"""What a training will need, told before it starts: memory, seconds, and what to change when it would not fit."""
