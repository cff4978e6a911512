"""Another cluster, made of copies of a cluster's disks: the same ids, on other ports."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tierstate.sandbox.artifacts import find_java, kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox


class CopyOf(KafkaSandbox):
    """A cluster on copies; ``disks`` is the copied log folder of each broker."""

    def __init__(self, disks: Sequence[Path], cluster_id: str, folder: Path) -> None:
        super().__init__(len(disks), folder=folder)
        self._disks, self._copied_id = disks, cluster_id

    def open(self) -> CopyOf:
        self.folder = (self._user_folder or Path()).resolve()
        self._prepare(find_java(), kafka_libs())
        self.cluster_id = self._copied_id
        for disk, broker in zip(self._disks, self.brokers, strict=True):
            shutil.copytree(disk, broker.log_dir, dirs_exist_ok=True)
            broker.launch()
        self._wait_ready(self.brokers)
        return self
