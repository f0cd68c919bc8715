"""An image in 8-bit RGB that the program around mlcc decoded, in place of Pillow's `Image`.

Standard library, and libmlcc_executor for resizes, whose bytes are those of Pillow.
"""

from __future__ import annotations

from mlcc.util.fast_dataclass import fast_dataclass

CHANNELS = 3


@fast_dataclass(frozen=True)
class RgbImage:
    """The part of Pillow's `Image` that processors use. pixels: uint8[height, width, 3]."""

    width: int
    height: int
    pixels: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    def tobytes(self) -> bytes:
        """The pixels."""
        return self.pixels

    def crop(self, box: tuple[int, int, int, int], fill: tuple[int, ...] = (0, 0, 0)) -> RgbImage:
        """The part from the left and upper edge to the right and lower one, and of the colour what
        is beyond the image."""
        left, upper, right, lower = box
        first, last = max(left, 0), min(right, self.width)
        before = bytes(fill[:3]) * max(0, first - left)
        behind = bytes(fill[:3]) * max(0, right - last)
        beyond = bytes(fill[:3]) * (right - left)
        line = CHANNELS * self.width
        found = []
        for y in range(upper, lower):
            if first >= last or not 0 <= y < self.height:
                found.append(beyond)
                continue
            piece = self.pixels[y * line + CHANNELS * first : y * line + CHANNELS * last]
            found.append(before + piece + behind)
        return RgbImage(right - left, lower - upper, b"".join(found))

    def resize(self, size: tuple[int, int], resample: int) -> RgbImage:
        """In another size. resample: a filter's number, of `RESAMPLES`. Raises DeviceError where
        libmlcc_executor is missing."""
        from mlcc.util import executor_library  # which a tab has not

        library = executor_library.load()
        made = library.resize(self.pixels, self.width, self.height, resample, *size)
        return RgbImage(*size, bytes(made))
