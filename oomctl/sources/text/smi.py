"""nvidia-smi tables, process lists, `--query-gpu` loops, and gpustat lines."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.log import SmiDevice, SmiProcess, SmiTable
from oomctl.sources.text.base import Findings, Passage
from oomctl.units import MIB

_NAME: Final = re.compile(r"^\s*\|\s*(?P<gpu>\d{1,3})\s+(?P<name>[A-Z][\w.()/-]*(?: [\w.()/-]+)*)\s{2,}.*\|")
_USAGE: Final = re.compile(r"(?P<used>\d{1,12})\s*MiB\s*/\s*(?P<total>\d{1,12})\s*MiB")
_PROCESS: Final = re.compile(
    r"^\s*\|?\s*(?P<gpu>\d{1,3})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d{1,8})\s+(?P<type>C\+G|C|G|M\+C)\s+"
    r"(?P<name>\S.*?)\s+(?P<used>\d{1,12}\s*MiB|N/A)\s*\|?\s*$"
)
_GPUSTAT: Final = re.compile(
    r"^\s*\[(?P<gpu>\d{1,3})\]\s+(?P<name>[A-Z][^|]*?)\s*\|.*\|\s*(?P<used>\d{1,12})\s*/\s*(?P<total>\d{1,12})\s*MB\s*\|"
)
_GPUSTAT_PROCESS: Final = re.compile(r"([\w./-]{1,200}?)(?:/(\d{1,10}))?\((\d{1,12})M\)")
_HEAD: Final = re.compile(r"NVIDIA-SMI\s+\d|\bProcesses:\s|gpustat|GPU\s+PID\s+Type")
WIDEST: Final = 2000
"""Characters of a line that may be a row; the widest real ones name the processes of a shared GPU."""
GAP: Final = 25
"""Lines between two rows of one table."""


class Smi:
    """Reads the tables; a device that comes again starts a new one."""

    slug = "nvidia_smi"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds one `SmiTable` a print."""
        devices: list[SmiDevice] = []
        processes: list[SmiProcess] = []
        first = last = 0
        gpu, name = None, ""

        def keep() -> None:
            if (devices or processes) and passage.stretch.accepts(first) and found.room("nvidia_smi", len(found.smi)):
                found.smi.append(SmiTable(tuple(devices), tuple(processes), first, found.source))
            devices.clear()
            processes.clear()

        for line in passage.lines:
            text = line.text if "|" in line.text or "MiB" in line.text else ""
            if not text or len(text) > WIDEST:
                continue
            if (devices or processes) and line.no - last > GAP:
                keep()
            if "NVIDIA-SMI" in text:
                keep()
            head = _NAME.match(text)
            if head and "MiB" not in text:
                gpu, name = int(head["gpu"]), head["name"].strip()
                continue
            stat = _GPUSTAT.match(text)
            if stat:
                number = int(stat["gpu"])
                if any(d.gpu == number for d in devices):
                    keep()
                first = first if devices or processes else line.no
                devices.append(SmiDevice(number, stat["name"], _mib(stat["used"]), _mib(stat["total"])))
                for who in _GPUSTAT_PROCESS.finditer(text[stat.end() :]):
                    processes.append(SmiProcess(number, int(who[2]) if who[2] else None, who[1], _mib(who[3])))
                last = line.no
                continue
            usage = _USAGE.search(text)
            if usage and gpu is not None:
                if any(d.gpu == gpu for d in devices):
                    keep()
                first = first if devices or processes else line.no
                devices.append(SmiDevice(gpu, name, _mib(usage["used"]), _mib(usage["total"])))
                gpu, last = None, line.no
                continue
            process = _PROCESS.match(text)
            if process:
                first = first if devices or processes else line.no
                used = None if process["used"] == "N/A" else _mib(process["used"].removesuffix("MiB"))
                processes.append(SmiProcess(int(process["gpu"]), int(process["pid"]), process["name"].strip(), used))
                last = line.no
        keep()


def _mib(text: str) -> int:
    return int(text) * MIB
