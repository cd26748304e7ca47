"""From scores to ranked lists: exact top-k, the seen-item filter, and outside ids in and out."""
