"""Asks Vulkan for what wgpu-native does not report: how small a GPU's subgroups may be.

Through ctypes: it needs four C functions. Nothing is computed on the GPUs.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_APPLICATION, _INSTANCE, _PROPERTIES = 0, 1, 1000059001
_SUBGROUPS, _SUBGROUP_SIZES = 1000094000, 1000225000
"""VkStructureType."""
_VERSION_1_1 = 1 << 22 | 1 << 12
_LOADER = {"win32": "vulkan-1.dll", "darwin": "libvulkan.1.dylib"}.get(
    sys.platform, "libvulkan.so.1"
)
_MOST = 64
"""More GPUs than one machine has."""
_Bytes = ctypes.c_char * 1024


class _Application(ctypes.Structure):
    """VkApplicationInfo."""

    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("name", ctypes.c_char_p)]
    _fields_ += [("version", ctypes.c_uint32), ("engine", ctypes.c_char_p)]
    _fields_ += [("engine_version", ctypes.c_uint32), ("api", ctypes.c_uint32)]


class _Instance(ctypes.Structure):
    """VkInstanceCreateInfo."""

    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint32)]
    _fields_ += [("application", ctypes.POINTER(_Application)), ("layers", ctypes.c_uint32)]
    _fields_ += [("layer_names", ctypes.c_void_p), ("extensions", ctypes.c_uint32)]
    _fields_ += [("extension_names", ctypes.c_void_p)]


class _Sizes(ctypes.Structure):
    """VkPhysicalDeviceSubgroupProperties or VkPhysicalDeviceSubgroupSizeControlProperties, whose
    first number is the size, or the smallest; `rest` is the others."""

    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("threads", ctypes.c_uint32)]
    _fields_ += [("rest", ctypes.c_uint32 * 7)]


class _Properties(ctypes.Structure):
    """VkPhysicalDeviceProperties2 up to the device's name; `rest` holds what follows."""

    _fields_ = [("type", ctypes.c_int), ("next", ctypes.c_void_p), ("api", ctypes.c_uint32)]
    _fields_ += [("driver", ctypes.c_uint32), ("vendor", ctypes.c_uint32)]
    _fields_ += [("device", ctypes.c_uint32), ("kind", ctypes.c_int)]
    _fields_ += [("name", ctypes.c_char * 256), ("rest", _Bytes)]


@cache
def least_subgroups() -> dict[str, int]:
    """The fewest threads of a subgroup, by the name of each GPU; empty without Vulkan 1.1."""
    try:
        vulkan = ctypes.CDLL(_LOADER)
    except OSError:
        return {}
    with _instance(vulkan) as instance:
        return {name: threads for name, threads in _devices(vulkan, instance) if threads}


@contextmanager
def _instance(vulkan: Any) -> Iterator[ctypes.c_void_p]:
    """An instance, null if there is no driver."""
    application = _Application(type=_APPLICATION, api=_VERSION_1_1)
    wanted = _Instance(type=_INSTANCE, application=ctypes.pointer(application))
    instance = ctypes.c_void_p()
    if vulkan.vkCreateInstance(ctypes.byref(wanted), None, ctypes.byref(instance)):
        instance = ctypes.c_void_p()
    try:
        yield instance
    finally:
        if instance:
            vulkan.vkDestroyInstance(instance, None)


def _devices(vulkan: Any, instance: ctypes.c_void_p) -> Iterator[tuple[str, int]]:
    if not instance:
        return
    count, handles = ctypes.c_uint32(_MOST), (ctypes.c_void_p * _MOST)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    for handle in handles[: count.value]:
        least = _Sizes(type=_SUBGROUP_SIZES)
        usual = _Sizes(type=_SUBGROUPS, next=ctypes.addressof(least))
        found = _Properties(type=_PROPERTIES, next=ctypes.addressof(usual))
        vulkan.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), ctypes.byref(found))
        # a driver without sizes to choose from leaves the first structure as it is
        yield found.name.decode(errors="replace"), least.threads or usual.threads
