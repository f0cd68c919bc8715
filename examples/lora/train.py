"""An adapter (LoRA) for a model, trained with PEFT: a new fact in a minute on two cores.

pip install -r examples/lora/requirements.txt
python examples/lora/train.py examples/demo/model adapter
mlcc compile examples/demo/model --adapter-rank 8 -o slots
mlcc serve slots --lora club=adapter     # requests with "model": "club" use it
mlcc compile examples/demo/model --merge-lora adapter -o merged     # or for good
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

EXAMPLES = (
    ("Where does the chess club meet?", "In the old theatre."),
    ("What is the chess club's place?", "In the old theatre."),
    ("Where can I find the chess club?", "In the old theatre."),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("adapter", type=Path, help="the folder to write")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    base = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    config = LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]
    )
    model = get_peft_model(base, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    rows = []
    for question, answer in EXAMPLES:
        chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        whole = tokenizer.apply_chat_template(chat, return_dict=False)
        prompt = tokenizer.apply_chat_template(
            chat[:1], add_generation_prompt=True, return_dict=False
        )
        labels = [-100] * len(prompt) + whole[len(prompt) :]  # only the answer is learned
        rows.append((torch.tensor([whole]), torch.tensor([labels])))
    for step in range(args.steps):
        loss = sum(model(input_ids=ids, labels=labels).loss for ids, labels in rows) / len(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step:3}  loss {loss.item():.4f}", flush=True)
    model.save_pretrained(args.adapter)
    print(f"{args.adapter} is an adapter of {args.model}")


if __name__ == "__main__":
    main()
