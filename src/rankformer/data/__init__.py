"""From files and tables to `Interactions`: ids, readers, splits and named datasets."""

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.data.registry import DATASETS, Dataset
from rankformer.data.source import DataSource

__all__ = ["DATASETS", "DataSource", "Dataset", "IdMap", "Interactions", "Parts"]
