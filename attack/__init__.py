"""The standing attack: `make attack` tries to lose, mix up and break what the library promises to keep."""
