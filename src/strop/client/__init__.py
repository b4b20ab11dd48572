"""Calls of Python -> the control plane over HTTP: submit, watch, publish, serve; typed, blocking or awaited.

`AgenticRL` has the source documents' names; `Client` and `AsyncClient` have every route. httpx is loaded by
the first client that is made.
"""

from strop.client.agentic_rl import AgenticRL, AsyncAgenticRL, BlockingAgenticRL
from strop.client.client import AsyncClient, Client
from strop.client.tuning import (
    AgenticRLFunctionComponent,
    Dataset,
    DataSourceType,
    FunctionComponentModel,
    FunctionComponentRuntime,
    GroupRewardFunctionComponent,
    RewardFunctionComponent,
    RolloutFunctionComponent,
    TrainingDataset,
    ValidationDataset,
)

__all__ = [
    "AgenticRL",
    "AgenticRLFunctionComponent",
    "AsyncAgenticRL",
    "AsyncClient",
    "BlockingAgenticRL",
    "Client",
    "DataSourceType",
    "Dataset",
    "FunctionComponentModel",
    "FunctionComponentRuntime",
    "GroupRewardFunctionComponent",
    "RewardFunctionComponent",
    "RolloutFunctionComponent",
    "TrainingDataset",
    "ValidationDataset",
]
