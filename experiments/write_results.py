"""Write RESULTS.md, the page of all measured tables and figures, from the reports in experiments/results.

python experiments/write_results.py
"""

from pathlib import Path

from rankformer.files import write_bytes_atomic
from rankformer.research.overview import overview, read_reports

ROOT = Path(__file__).parents[1]
FOLDER = "experiments/results"


def main() -> None:
    """Read the reports and write the page at the root of the repository."""
    write_bytes_atomic(ROOT / "RESULTS.md", overview(read_reports(ROOT / FOLDER), FOLDER).encode())


if __name__ == "__main__":
    main()
