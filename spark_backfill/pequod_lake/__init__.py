"""A lake: atomic batches of rows taken in by the million, merged behind, and read as fresh as each query wants.

docs/lake.md is the page for users, docs/architecture/spark.md has the files. The design is LazyBase's.
"""

from pequod_lake.authority import StageLimits
from pequod_lake.blocks import CacheLimits
from pequod_lake.errors import LakeError
from pequod_lake.freshness import AtLeast, Authority, Newest, WithinAge, parse_level
from pequod_lake.ingest import Acknowledged, IngestLimits, Ingestor
from pequod_lake.lake import Lake, LakeStatus
from pequod_lake.query import LakeAnswer, LakeSnapshot
from pequod_lake.runs import MergePolicy
from pequod_lake.schema import LakeSchema
from pequod_lake.uploads import Upload

__all__ = [
    "Acknowledged",
    "AtLeast",
    "Authority",
    "CacheLimits",
    "IngestLimits",
    "Ingestor",
    "Lake",
    "LakeAnswer",
    "LakeError",
    "LakeSchema",
    "LakeSnapshot",
    "LakeStatus",
    "MergePolicy",
    "Newest",
    "StageLimits",
    "Upload",
    "WithinAge",
    "parse_level",
]
