"""transformers' processors with the PIL backend, of tiny models; Llama 4's, which has torch's
alone, with the functions of torch that torchvision calls for it."""

from __future__ import annotations

import importlib
import re
import sys
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from mlcc.artifact.schema import VisionInfo

_RESAMPLES = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
_WORDS = ["what is this? a b here are some crops to help you see better the original image\n\n\n"]
_SPECIAL = {
    "idefics3": ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    + [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)],
    "gemma3": ["<start_of_image>", "<image_soft_token>", "<end_of_image>"],
    "gemma4": ["<|image>", "<|image|>", "<image|>", "<|video|>"],
    "llama4": [
        *("<|image_start|>", "<|image|>", "<|patch|>", "<|tile_x_separator|>"),
        *("<|tile_y_separator|>", "<|image_end|>"),
    ],
    "llava": ["<image>"],
    "llava_onevision": ["<video>", "<image>"],
    "internvl": ["<img>", "<IMG_CONTEXT>", "</img>", "<video>"],
    "pixtral": ["[IMG_BREAK]", "[IMG_END]", "[IMG]"],
    "qwen2_vl": ["<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>"],
}


@cache
def _llama4() -> Any:
    """The module of Llama 4's image processor. torchvision, which it imports, is not installed; its
    resize of bytes on a CPU with AVX is torch's, to the byte."""
    import transformers.image_processing_backends as backends

    def resize(image: Any, size: Any, interpolation: Any, antialias: bool) -> Any:
        return torch.nn.functional.interpolate(
            image, size, mode=interpolation, antialias=antialias, align_corners=False
        )

    def pad(image: Any, padding: Any, fill: Any) -> Any:
        assert {*fill} == {0}
        left, upper, right, lower = padding
        return torch.nn.functional.pad(image, (left, right, upper, lower))

    def normalize(image: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
        means, deviations = (
            torch.tensor(of, dtype=image.dtype).view(-1, 1, 1) for of in (mean, std)
        )
        return (image - means) / deviations

    functional = SimpleNamespace(
        resize=resize,
        pad=pad,
        normalize=normalize,
        pil_to_tensor=lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1),
        InterpolationMode=SimpleNamespace(LANCZOS="lanczos", BILINEAR="bilinear"),
    )
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
    modules = {name: ModuleType(name) for name in names}
    modules[names[-1]].functional = functional  # type: ignore[attr-defined]
    with patch.dict(sys.modules, modules):
        found = importlib.import_module("transformers.models.llama4.image_processing_llama4")
    backends.tvF = functional
    backends.pil_torch_interpolation_mapping = {2: "bilinear"}
    return found


def image_processor(info: VisionInfo) -> Any:
    """The image processor, which neither scales nor normalizes: its output is the bytes."""
    if info.processor == "llama4":
        return _llama4().Llama4ImageProcessor(
            size={"height": info.image_size, "width": info.image_size},
            max_patches=info.max_tiles,
            do_rescale=False,
            do_normalize=False,
        )
    common = {"resample": _RESAMPLES[info.resample], "do_rescale": False, "do_normalize": False}
    if info.processor == "idefics3":
        from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3

        return idefics3.Idefics3ImageProcessorPil(
            size={"longest_edge": info.longest_edge},
            max_image_size={"longest_edge": info.image_size},
            do_image_splitting=info.split,
            **common,
        )
    if info.processor == "gemma3":
        from transformers.models.gemma3 import image_processing_pil_gemma3 as gemma3

        return gemma3.Gemma3ImageProcessorPil(
            size={"height": info.image_size, "width": info.image_size},
            do_pan_and_scan=info.split,
            pan_and_scan_min_crop_size=256,
            pan_and_scan_max_num_crops=info.max_tiles,
            pan_and_scan_min_ratio_to_activate=1.2,
            **common,
        )
    if info.processor == "gemma4":
        from transformers.models.gemma4 import image_processing_pil_gemma4 as gemma4

        group = info.patch_size * info.merge_size
        return gemma4.Gemma4ImageProcessorPil(
            patch_size=info.patch_size,
            pooling_kernel_size=info.merge_size,
            max_soft_tokens=info.max_pixels // group**2,
            **common,
        )
    if info.processor == "llava":
        from transformers.models.clip import image_processing_pil_clip as clip

        side = info.image_size
        crop = {"height": side, "width": side}
        return clip.CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop, **common)
    if info.processor == "llava_onevision":
        from transformers.models.llava_onevision import image_processing_pil_llava_onevision as ov

        return ov.LlavaOnevisionImageProcessorPil(
            size={"height": info.image_size, "width": info.image_size},
            image_grid_pinpoints=[[height, width] for width, height in info.grids],
            image_mean=list(info.mean),
            **common,
        )
    if info.processor == "internvl":
        from transformers.models.got_ocr2 import image_processing_pil_got_ocr2 as got_ocr2

        return got_ocr2.GotOcr2ImageProcessorPil(
            size={"height": info.image_size, "width": info.image_size},
            crop_to_patches=info.split,
            max_patches=info.max_tiles,
            **common,
        )
    if info.processor == "pixtral":
        from transformers.models.pixtral import image_processing_pil_pixtral as pixtral

        side = info.patch_size * info.merge_size
        return pixtral.PixtralImageProcessorPil(
            size={"longest_edge": info.longest_edge},
            patch_size={"height": side, "width": side},
            **common,
        )
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen2_vl

    return qwen2_vl.Qwen2VLImageProcessorPil(
        size={"shortest_edge": info.min_pixels, "longest_edge": info.max_pixels},
        patch_size=info.patch_size,
        temporal_patch_size=1,
        merge_size=info.merge_size,
        **common,
    )


def resized_by(info: VisionInfo, image: Image.Image) -> list[np.ndarray]:
    """uint8 [height, width, 3] of each tile."""
    given = [[image]] if info.processor == "idefics3" else [image]
    kind = "pt" if info.processor == "llama4" else "np"
    made = image_processor(info)(images=given, return_tensors=kind)
    pixels = np.asarray(made["pixel_values"])
    if info.processor == "qwen2_vl":
        return [_unpatched(pixels, *made["image_grid_thw"][0][1:], info)]
    if info.processor == "gemma4":
        return [_unrastered(pixels[0], made["image_position_ids"][0], info.patch_size)]
    whole = pixels[0] if info.processor in ("idefics3", "llava_onevision") else pixels
    return [np.ascontiguousarray(tile.transpose(1, 2, 0)).astype(np.uint8) for tile in whole]


def _unpatched(patches: np.ndarray, rows: int, columns: int, info: VisionInfo) -> np.ndarray:
    """The image of patches in the order of their groups."""
    side, merge = info.patch_size, info.merge_size
    shape = (rows // merge, columns // merge, merge, merge, 3, side, side)
    picture = patches.reshape(shape).transpose(0, 2, 5, 1, 3, 6, 4)
    return np.ascontiguousarray(picture.reshape(rows * side, columns * side, 3)).astype(np.uint8)


def _unrastered(patches: np.ndarray, places: np.ndarray, side: int) -> np.ndarray:
    """The image of patches, row by row, by their columns and rows; without padding."""
    columns, rows = places.max(0) + 1
    picture = patches[: rows * columns].reshape(rows, columns, side, side, 3)
    return picture.transpose(0, 2, 1, 3, 4).reshape(rows * side, -1, 3).astype(np.uint8)


def tokenizer_of(info: VisionInfo) -> Any:
    """A tiny byte-level tokenizer with the processor's special tokens, that joins line ends."""
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = _SPECIAL[info.processor]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        _WORDS * 3, BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    extra: dict[str, Any] = {}
    if info.processor == "gemma3":
        names = ("boi_token", "image_token", "eoi_token")
        extra = {"extra_special_tokens": dict(zip(names, special, strict=True))}
    if info.processor == "gemma4":
        extra = {"pad_token": "<pad>"}  # its processor pads texts
    return PreTrainedTokenizerFast(
        tokenizer_object=made, additional_special_tokens=special, **extra
    )


def processor_of_transformers(info: VisionInfo, tokenizer: Any = None) -> tuple[Any, Any]:
    """The processor of texts and images, and its tokenizer (None = a tiny one)."""
    from transformers.models.gemma3 import Gemma3Processor
    from transformers.models.idefics3 import Idefics3Processor
    from transformers.models.llava import LlavaProcessor
    from transformers.models.qwen2_vl import Qwen2VLProcessor

    tokenizer, images = tokenizer or tokenizer_of(info), image_processor(info)
    if info.processor == "qwen2_vl":
        made = object.__new__(
            Qwen2VLProcessor
        )  # without a video processor, which needs torchvision
        made.image_token, made.video_token = "<|image_pad|>", "<|video_pad|>"
        made.image_token_id = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        made.video_token_id = tokenizer.convert_tokens_to_ids("<|video_pad|>")
        made.image_processor, made.tokenizer, made.chat_template = images, tokenizer, None
        return made, tokenizer
    if info.processor == "llava":
        return LlavaProcessor(
            images,
            tokenizer,
            patch_size=info.patch_size,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
        ), tokenizer
    if info.processor == "llava_onevision":
        return _onevision(images, tokenizer, info), tokenizer
    if info.processor == "pixtral":
        return _pixtral(images, tokenizer, info), tokenizer
    if info.processor == "gemma4":
        return _gemma4(images, tokenizer), tokenizer
    rows = (info.image_size // info.patch_size // info.merge_size) ** 2
    if info.processor == "internvl":
        return _internvl(images, tokenizer, rows), tokenizer
    if info.processor == "llama4":
        return _llama4_processor(images, tokenizer, info), tokenizer
    if info.processor == "gemma3":
        return Gemma3Processor(images, tokenizer, image_seq_length=rows), tokenizer
    return Idefics3Processor(images, tokenizer, image_seq_len=rows), tokenizer


def _pixtral(images: Any, tokenizer: Any, info: VisionInfo) -> Any:
    """Without torchvision, which its constructor asks for, and the import of another backend's
    image processor: the size of an image is the same function in both."""
    from transformers.models.pixtral import image_processing_pil_pixtral as pil

    with patch.dict(sys.modules, {pil.__name__.replace("_pil", ""): pil}):
        from transformers.models.pixtral.processing_pixtral import PixtralProcessor
    made = object.__new__(PixtralProcessor)
    made.image_processor, made.tokenizer, made.chat_template = images, tokenizer, None
    made.patch_size, made.spatial_merge_size = info.patch_size, info.merge_size
    names = {"image": "[IMG]", "image_break": "[IMG_BREAK]", "image_end": "[IMG_END]"}
    for name, token in names.items():
        setattr(made, f"{name}_token", token)
        setattr(made, f"{name}_token_id", tokenizer.convert_tokens_to_ids(token))
    return made


def _gemma4(images: Any, tokenizer: Any) -> Any:
    """Without a video processor, which needs torchvision, and without sound."""
    from transformers.models.gemma4 import Gemma4Processor

    made = object.__new__(Gemma4Processor)
    made.image_processor, made.tokenizer, made.chat_template = images, tokenizer, None
    names = {"image": "<|image|>", "boi": "<|image>", "eoi": "<image|>", "video": "<|video|>"}
    for name, token in {
        **names,
        "audio": "<|audio|>",
        "boa": "<|audio>",
        "eoa": "<audio|>",
    }.items():
        setattr(made, f"{name}_token", token)
    for name in ("image", "video"):
        setattr(made, f"{name}_token_id", tokenizer.convert_tokens_to_ids(names[name]))
    return made


def _onevision(images: Any, tokenizer: Any, info: VisionInfo) -> Any:
    """Without a video processor, which needs torchvision."""
    from transformers.models.llava_onevision import LlavaOnevisionProcessor

    made = object.__new__(LlavaOnevisionProcessor)
    made.image_processor, made.tokenizer, made.chat_template = images, tokenizer, None
    made.num_image_tokens = (info.image_size // info.patch_size) ** 2
    made.vision_feature_select_strategy = "full"
    made.vision_aspect_ratio = f"anyres_max_{info.max_tiles}"
    made.image_token, made.video_token = "<image>", "<video>"
    made.image_token_id = tokenizer.convert_tokens_to_ids("<image>")
    made.video_token_id = tokenizer.convert_tokens_to_ids("<video>")
    return made


def _internvl(images: Any, tokenizer: Any, rows: int) -> Any:
    """Without a video processor, which needs torchvision."""
    from transformers.models.internvl import InternVLProcessor

    made = object.__new__(InternVLProcessor)
    made.image_processor, made.tokenizer, made.chat_template = images, tokenizer, None
    made.image_seq_length = rows
    made.start_image_token, made.end_image_token = "<img>", "</img>"
    made.image_token, made.video_token = "<IMG_CONTEXT>", "<video>"
    made.multimodal_pattern = re.compile("(?P<image><IMG_CONTEXT>)|(?P<video><video>)")
    ids = [tokenizer.convert_tokens_to_ids(name) for name in ("<img>", "</img>", "<IMG_CONTEXT>")]
    made.start_image_token_id, made.end_image_token_id, made.image_token_id = ids
    return made


def _llama4_processor(images: Any, tokenizer: Any, info: VisionInfo) -> Any:
    from transformers.models.llama4.processing_llama4 import Llama4Processor

    made = object.__new__(Llama4Processor)
    made.image_processor, made.tokenizer, made.chat_template = images, tokenizer, None
    made.patch_size, made.downsample_ratio = info.patch_size, info.merge_size**2
    made.image_token = made.fake_image_token = "<|image|>"
    made.image_token_id = tokenizer.convert_tokens_to_ids("<|image|>")
    return made
