"""A trained model's vectors in the forms that other programs search."""
