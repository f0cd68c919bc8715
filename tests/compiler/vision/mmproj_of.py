"""Converts a small checkpoint that sees to GGUF as llama.cpp's converter does: its text, and its
tower as an mmproj file.

Uses the `gguf` package's writer and its map of names, with the converter's documented changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

from tests.compiler.checkpoint.helpers.gguf_changes import in_pairs
from tests.compiler.checkpoint.helpers.gguf_of import add, mapped, write_gguf
from tests.compiler.vision.checkpoints import IMAGE, OF_AREA

Array = np.ndarray[Any, Any]
Named = tuple[str, Array]

TOKENS = {
    "gemma3": "<image_soft_token>",
    "gemma4": "<|image|>",
    "gemma4-both-ways": "<|image|>",
    "smolvlm": "<image>",
    "internvl": "<IMG_CONTEXT>",
    "llama4": "<|patch|>",
    "llava": "<image>",
    "llava_onevision": "<image>",
    "mistral3": "[IMG]",
    "pixtral": "[IMG]",
    "qwen2_vl": "<|image_pad|>",
    "qwen2_5_vl": "<|image_pad|>",
    "qwen3_vl": "<|image_pad|>",
    "qwen3_vl_moe": "<|image_pad|>",
    "qwen3_5": "<|image_pad|>",
    "qwen3_5_moe": "<|image_pad|>",
}
"""The families that llama.cpp converts, and the text of the image's token."""
KINDS = {
    "gemma3": "gemma3",
    "gemma4": "gemma4v",
    "gemma4-both-ways": "gemma4v",
    "smolvlm": "idefics3",
    "internvl": "internvl",
    "llama4": "llama4",
    "llava": "mlp",
    "llava_onevision": "mlp",
    "mistral3": "pixtral",
    "pixtral": "pixtral",
    "qwen2_vl": "qwen2vl_merger",
    "qwen2_5_vl": "qwen2.5vl_merger",
}
SOUND = 120
"""The token of a sound, in Gemma 4's vocabulary."""
OF_TEXT = re.compile(r"(model\.)?(language_model|text_model|lm_head|layers|embed_tokens|norm)\.")
"""Beginnings of the names of the language model's tensors."""


OWN_NAMES = ("v.", "mm.", "a.", "model.image_newline")
"""Beginnings of names that are llama.cpp's already."""


def write_pair(folder: Path, family: str, name: str = "model", **more: Any) -> tuple[Path, Path]:
    """`name`.gguf and mmproj-`name`-f16.gguf (of float32) in a folder below. more: metadata of the
    tower that replaces the converter's."""
    out = folder / "gguf"
    out.mkdir(exist_ok=True)
    model = write_gguf(_text(folder), out / f"{name}.gguf", metadata=_vocabulary(family, folder))
    return model, write_mmproj(folder, out / f"mmproj-{name}-f16.gguf", family, **more)


def write_mmproj(
    folder: Path, out: Path, family: str, older_names: bool = False, **more: Any
) -> Path:
    """older_names: those of files of early 2025."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out, "clip")
    for key, value in {**_keys(config, folder, family), **more}.items():
        add(writer, key, value)
    for name, array in _tensors(folder, config, family).items():
        if older_names:
            name = re.sub("ffn_(up|down)", lambda n: "ffn_" + {"up": "down"}.get(n[1], "up"), name)
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _vocabulary(family: str, folder: Path) -> dict[str, Any]:
    rows = json.loads((folder / "config.json").read_text())["text_config"]["vocab_size"]
    tokens = [f"w{i}" for i in range(rows)]
    tokens[IMAGE] = TOKENS[family]
    if family in OF_AREA:
        tokens[SOUND] = "<|audio|>"
    tokens[2] = tokens[0] + tokens[1]  # there are no empty arrays of merges
    slides = {"gemma3.attention.sliding_window_pattern": [True, False]}
    return {
        **(slides if family == "gemma3" else {}),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i == IMAGE else 1 for i in range(rows)],
        "tokenizer.ggml.merges": [f"{tokens[0]} {tokens[1]}"],
    }


def _text(folder: Path) -> Path:
    """The language model as a checkpoint of its own."""
    config = json.loads((folder / "config.json").read_text())
    text = {**config["text_config"], "tie_word_embeddings": config["tie_word_embeddings"]}
    out = folder / "text"
    out.mkdir(exist_ok=True)
    (out / "config.json").write_text(json.dumps(text))
    tensors = {}
    for name, array in load_file(folder / "model.safetensors").items():
        if OF_TEXT.match(name):
            if ".experts." in name and text["model_type"] == "qwen3_vl_moe_text":
                array = np.ascontiguousarray(array.swapaxes(1, 2))  # as transformers 5 saves them
            own = re.sub(r"(language|text)_model\.(model\.)?", "", name)
            tensors[re.sub(r"^(model\.)?layers", "model.layers", own)] = array
    save_file(tensors, out / "model.safetensors")
    return out


def _keys(config: Mapping[str, Any], folder: Path, family: str) -> dict[str, Any]:
    vision = config["vision_config"]
    own = json.loads((folder / "preprocessor_config.json").read_text())
    heads = vision.get("num_attention_heads") or vision["num_heads"]
    patch, side = vision["patch_size"], vision.get("image_size", 560)
    found: dict[str, Any] = {
        "general.type": "mmproj",
        "clip.has_vision_encoder": True,
        "clip.projector_type": KINDS.get(family, "qwen3vl_merger"),
        "clip.vision.projection_dim": config["text_config"]["hidden_size"],
        "clip.vision.embedding_length": vision.get("embed_dim") or vision["hidden_size"],
        "clip.vision.feed_forward_length": vision.get("intermediate_size", vision["hidden_size"]),
        "clip.vision.block_count": vision.get("num_hidden_layers") or vision["depth"],
        "clip.vision.attention.head_count": heads,
        "clip.vision.attention.layer_norm_epsilon": 1e-6,
        "clip.vision.patch_size": patch if isinstance(patch, int) else patch[0],
        "clip.vision.image_size": side if isinstance(side, int) else side[0],
        "clip.vision.image_mean": own["image_mean"],
        "clip.vision.image_std": own["image_std"],
    }
    return {**found, **_more(config, vision, own, family), **_of_sound(config)}


def _of_sound(config: Mapping[str, Any]) -> dict[str, Any]:
    if (audio := config.get("audio_config")) is None:
        return {}
    return {
        "clip.has_audio_encoder": True,
        "clip.audio.projector_type": "gemma4a",
        "clip.audio.projection_dim": config["text_config"]["hidden_size"],
        "clip.audio.embedding_length": audio["hidden_size"],
        "clip.audio.feed_forward_length": 4 * audio["hidden_size"],
        "clip.audio.block_count": audio["num_hidden_layers"],
        "clip.audio.attention.head_count": audio["num_attention_heads"],
        "clip.audio.attention.layer_norm_epsilon": 1e-5,
        "clip.audio.num_mel_bins": audio["subsampling_conv_channels"][0],
    }


def _more(config: Any, vision: Any, own: Any, family: str) -> dict[str, Any]:
    scale = "clip.vision.projector.scale_factor"
    if family == "gemma3":
        side = vision["image_size"] // vision["patch_size"]
        return {scale: int(side / config["mm_tokens_per_image"] ** 0.5)}
    if family in OF_AREA:
        merge = vision["pooling_kernel_size"]
        area = own["max_soft_tokens"] * (vision["patch_size"] * merge) ** 2
        return {scale: merge, "clip.vision.image_max_pixels": area}
    if family == "smolvlm":
        edge = own["size"]["longest_edge"]
        return {scale: config["scale_factor"], "clip.vision.preproc_image_size": edge}
    if family == "internvl":
        return {scale: int(1 / config["downsample_ratio"]), "clip.use_gelu": True}
    if family == "llama4":
        return {scale: int(1 / vision["pixel_shuffle_ratio"]), "clip.use_gelu": True}
    if family in ("llava", "llava_onevision"):
        return _of_llava(config, vision)
    if family in ("mistral3", "pixtral"):
        merge = config.get("spatial_merge_size")
        sides = {"clip.vision.spatial_merge_size": merge} if merge else {}
        return {**sides, f"clip.use_{vision['hidden_act']}": True}
    area = own["size"]
    pixels = {
        "clip.vision.image_min_pixels": area["shortest_edge"],
        "clip.vision.image_max_pixels": area["longest_edge"],
    }
    if family == "qwen2_vl":
        return pixels
    if family == "qwen2_5_vl":
        every = vision["fullatt_block_indexes"][0] + 1
        window = {"clip.vision.window_size": vision["window_size"]}
        return {"clip.vision.n_wa_pattern": every, "clip.use_silu": True, **window, **pixels}
    taken = vision.get("deepstack_visual_indexes", [])
    flags = [i in taken for i in range(vision["depth"])]
    return {"clip.vision.is_deepstack_layers": flags, **pixels}


def layers_of(config: Any) -> int:
    """Layers of the tower, up to the one whose output is taken."""
    vision, taken = config["vision_config"], config.get("vision_feature_layer", -1)
    layers: int = vision.get("num_hidden_layers") or vision["depth"]
    return taken if taken > 0 else layers + 1 + taken


def _of_llava(config: Any, vision: Any) -> dict[str, Any]:
    """Those of the older converter, which leaves the layers out that are not computed. The width
    of rows is CLIP's own, which LLaVA does not have."""
    taken = layers_of(config)
    found: dict[str, Any] = {
        "clip.has_llava_projector": True,
        "clip.use_gelu": vision["hidden_act"] == "gelu",
        "clip.vision.projection_dim": 12,
        "clip.vision.block_count": taken,
        "clip.vision.feature_layer": [taken],
        "clip.vision.attention.layer_norm_epsilon": vision["layer_norm_eps"],
    }
    if grids := config.get("image_grid_pinpoints"):
        found["clip.vision.image_grid_pinpoints"] = [side for grid in grids for side in grid]
        found["clip.vision.image_aspect_ratio"] = config["vision_aspect_ratio"]
        found["clip.vision.mm_patch_merge_type"] = "spatial_unpad"
    return found


def _tensors(folder: Path, config: Any, family: str) -> dict[str, Array]:
    vision, layers = config["vision_config"], layers_of(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(layers, 4))
    found = {}
    for original, whole in load_file(folder / "model.safetensors").items():
        if OF_TEXT.match(original):
            continue
        for name, array in CHANGES.get(family, _qwen)(original, whole, vision):
            if (block := re.match(r"v\.blk\.(\d+)\.", name)) and int(block[1]) >= layers:
                continue  # not computed
            found[name if name.startswith(OWN_NAMES) else mapped(names, name)] = array
    return found


def _gemma3(name: str, array: Array, vision: Any) -> Iterator[Named]:
    name = name.removeprefix("model.").replace("input_projection_weight", "input_projection.weight")
    name = re.sub(r"vision_tower\.(?!vision_model)", "vision_tower.vision_model.", name)
    if ".head." in name:
        return
    yield name, array + 1 if "soft_emb_norm" in name else array


def _gemma4(name: str, array: Array, vision: Any) -> Iterator[Named]:
    """Bounds are vectors of one number, and the first matrix is a convolution. Of the audio tower
    a vector is softplus of the checkpoint's, and a filter has two dimensions."""
    if "audio" in name:
        name = name.replace("model.audio_tower.", "conformer.").replace(".linear.", ".")
        if name.endswith("per_dim_scale"):
            name, array = name + ".weight", np.log1p(np.exp(array))
        if name.endswith("depthwise_conv1d.weight"):
            array = array[:, 0]
        stem, _, kind = name.rpartition(".")
        own = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4).get_name(stem)
        assert own is not None, name
        yield f"{own}.{kind}", array.reshape(array.shape or (1,))
        return
    name = name.replace("model.vision_tower.encoder.", "vision_model.model.")
    name = name.replace(".linear.weight", ".weight")
    if name.endswith("position_embedding_table"):
        name += ".weight"
    if name.endswith("patch_embedder.input_proj.weight"):
        side = vision["patch_size"]
        array = array.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
    if name.endswith("embed_vision.embedding_projection.weight"):
        name = "mm.input_projection.weight"
    if part := re.fullmatch(r"(.*)\.(?:linear\.)?((?:in|out)put_(?:min|max))", name):
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4)
        stem = names.get_name(part[1])
        assert stem is not None, name
        yield f"{stem}.{part[2]}", array.reshape(1)
    elif name.endswith(("std_bias", "std_scale")):
        yield f"v.{name.rpartition('.')[2]}", array
    else:
        yield name, array


def _smolvlm(name: str, array: Array, vision: Any) -> Iterator[Named]:
    yield name, array


def _internvl(name: str, array: Array, vision: Any) -> Iterator[Named]:
    """Its own names of the projector, which are numbered."""
    numbers = {"layer_norm": "mlp1.0", "linear_1": "mlp1.1", "linear_2": "mlp1.3"}
    name = "model." + name.removeprefix("model.")
    for part, own in numbers.items():
        name = re.sub(rf".*multi_modal_projector\.{part}", own, name)
    if name.endswith(("cls_token", "position_embeddings")):
        end = "v.class_embd" if "cls" in name else "v.position_embd.weight"
        yield end, array
    elif "lambda" in name:
        layer, one = re.findall(r"layer\.(\d+)\.lambda_(\d)", name)[0]
        yield f"v.blk.{layer}.ls{one}.weight", array
    elif "mask_token" not in name:
        yield name, array


def _llama4(name: str, array: Array, vision: Any) -> Iterator[Named]:
    """The projector's matrix has a name without a number."""
    name = name.removeprefix("model.").replace("embedding_vlm", "embedding_vlm.weight")
    if name.endswith("class_embedding"):
        name = "v.class_embd"
    if norm := re.fullmatch(r".*\.(\d+)\.post_attention_layernorm(\.\w+)", name):
        name = f"v.blk.{norm[1]}.ln2{norm[2]}"  # the package's map has Gemma 4's name since
    yield name.replace("multi_modal_projector.linear_1", "mm.model.fc"), array


def _llava(name: str, array: Array, vision: Any) -> Iterator[Named]:
    """By the older converter's own names, in which an MLP's first matrix is ffn_down."""
    name = re.sub(r"^(model\.)?(vision_tower\.)?(vision_model\.)?", "", name)
    if name == "image_newline":
        yield "model.image_newline", array
    elif name.startswith("multi_modal_projector"):
        for part, own in (("multi_modal_projector", "mm"), ("linear_1", "0"), ("linear_2", "2")):
            name = name.replace(part, own)
        yield name, array
    elif not name.startswith("post_layernorm"):
        for part, own in OF_CLIP.items():
            name = name.replace(part, own)
        yield f"v.{name}", array


OF_CLIP = {
    "encoder.layers": "blk",
    "embeddings.": "",
    "_proj": "",
    "self_attn.": "attn_",
    "layer_norm": "ln",
    "mlp.fc1": "ffn_down",
    "mlp.fc2": "ffn_up",
    "embedding": "embd",
    "layrnorm": "ln",
}


def _pixtral(name: str, array: Array, vision: Any) -> Iterator[Named]:
    name = name.removeprefix("model.")
    paired = name.endswith(("q_proj.weight", "k_proj.weight"))
    yield name, in_pairs(array, vision["num_attention_heads"]) if paired else array


def _qwen(name: str, array: Array, vision: Any) -> Iterator[Named]:
    """Frames of the first convolution are two tensors; q, k and v of Qwen2's are apart."""
    name, kind = name.removeprefix("model."), name.rpartition(".")[2]
    if name == "visual.patch_embed.proj.weight":
        yield "v.patch_embd.weight", array[:, :, 0]
        yield "v.patch_embd.weight.1", array[:, :, 1]
    elif deep := re.fullmatch(r"visual\.deepstack_merger_list\.(\d+)\.(linear_)?(\w+)\.\w+", name):
        layer = vision["deepstack_visual_indexes"][int(deep[1])]
        yield f"v.deepstack.{layer}.{deep[3]}.{kind}", array
    elif merger := re.fullmatch(r"visual\.merger\.(norm|linear_fc1|linear_fc2)\.\w+", name):
        own = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}[merger[1]]
        yield f"{own}.{kind}", array
    elif (
        ".attn.qkv." in name
        and "deepstack_visual_indexes" not in vision
        and ("num_position_embeddings" not in vision)
    ):
        for part, rows in zip("qkv", np.split(array, 3), strict=True):
            yield name.replace("qkv", part), rows
    else:
        yield name, array


CHANGES: dict[str, Callable[[str, Array, Any], Iterator[Named]]] = {
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "gemma4-both-ways": _gemma4,
    "smolvlm": _smolvlm,
    "internvl": _internvl,
    "llama4": _llama4,
    "llava": _llava,
    "llava_onevision": _llava,
    "mistral3": _pixtral,
    "pixtral": _pixtral,
}
