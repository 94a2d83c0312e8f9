#!/usr/bin/env python3
"""A Hugging Face model with random weights, tensor parallel (tp_plan="auto"), one process per GPU: arcomm beside NCCL.

  transformers_rank.py --rank R --ranks N --id-file PATH [--device cpu] [--small]

Tokens must be those with NCCL (Gloo on CPUs), eager and in CUDA graphs; their number per second; and what each codec does
to tokens and logits. Prints a table; exit code 1 where tokens differ.
"""
import argparse
import datetime
import faulthandler
import os
import sys
import time
import traceback

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--ranks", type=int, required=True)
parser.add_argument("--id-file", required=True)
parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
parser.add_argument("--small", action="store_true", help="a model of a few million parameters")
options = parser.parse_args()
os.environ.setdefault("ARCOMM_DEVICE", "gpu" if options.device == "cuda" else "host:0")
os.environ.update(RANK=str(options.rank), LOCAL_RANK=str(options.rank), WORLD_SIZE=str(options.ranks), HF_HUB_OFFLINE="1",
                  TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", TQDM_DISABLE="1")

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import DeviceMesh

import arcomm.torch_backend

CODECS = ("fp8", "q8", "q6", "q4")
PROMPT, TOKENS = 16, 64


def say(*words):
    if options.rank == 0:
        print(*words, flush=True)


def synchronize():
    if options.device == "cuda":
        torch.cuda.synchronize()


def saved(folder):
    """A checkpoint of random weights, the same for all ranks."""
    sizes = dict(hidden_size=256, intermediate_size=688, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
                 vocab_size=1000) if options.small else dict(
                 hidden_size=2048, intermediate_size=5504, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8,
                 vocab_size=32000)
    config = transformers.LlamaConfig(max_position_embeddings=512, initializer_range=0.05, **sizes)
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def loaded(folder, group):
    mesh = DeviceMesh.from_group(group, options.device)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", device_mesh=mesh, dtype=torch.bfloat16)
    return model.eval()


class Decoding:
    """Greedy, with a static cache, so that a step can be captured."""

    def __init__(self, model, batch):
        self.model = model
        self.token = torch.empty(batch, 1, dtype=torch.long, device=options.device)
        self.place = torch.zeros(1, dtype=torch.long, device=options.device)
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=PROMPT + TOKENS + 8)
        self.graph = None

    def step(self):
        logits = self.model(input_ids=self.token, position_ids=self.place[None].expand(self.token.shape[0], 1),
                            past_key_values=self.cache, use_cache=True).logits
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def capture(self):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.following = self.step()

    def run(self, prompt):
        """The tokens said, and seconds for them."""
        self.cache.reset()
        said = []
        for place in range(PROMPT + TOKENS):
            if place == PROMPT:
                synchronize()
                dist.barrier()
                before = time.perf_counter()
            self.token.copy_(prompt[:, place:place + 1] if place < PROMPT else following)
            self.place.fill_(place)
            if self.graph is not None:
                self.graph.replay()
                following = self.following
            else:
                following = self.step()
            if place >= PROMPT:
                said.append(following.clone())
        synchronize()
        return torch.cat(said, 1), time.perf_counter() - before


def prompt_of(model, batch):
    generator = torch.Generator().manual_seed(11)
    return torch.randint(0, model.config.vocab_size, (batch, PROMPT), generator=generator).to(options.device)


@torch.inference_mode()
def serving(models):
    """models: name -> model. The same tokens from all, and how many a second."""
    ways = ("eager", "graph") if options.device == "cuda" else ("eager",)
    say("batch  " + "".join(f"{way + ': ' + name:>18}" for way in ways for name in models))
    for batch in (1, 8, 64):
        prompt = prompt_of(next(iter(models.values())), batch)
        first, line = None, f"{batch:>5}  "
        for way in ways:
            for name, model in models.items():
                decoding = Decoding(model, batch)
                decoding.run(prompt)
                if way == "graph":
                    decoding.capture()
                runs = [decoding.run(prompt) for _ in range(2)]
                for said, _ in runs:
                    first = said if first is None else first
                    # Two addends have one sum; more may be added in another order.
                    if options.ranks == 2 and not torch.equal(said, first):
                        raise RuntimeError(f"batch {batch}, {way}: {name} says other tokens")
                line += f"{batch * TOKENS / min(seconds for _, seconds in runs):18.0f}"
        say(line)


@torch.inference_mode()
def logits_of(model):
    generator = torch.Generator().manual_seed(12)
    text = torch.randint(0, model.config.vocab_size, (8, 128), generator=generator).to(options.device)
    logits = model(input_ids=text, use_cache=False).logits
    return (logits.full_tensor() if hasattr(logits, "full_tensor") else logits).float()


def codecs(folder, exact):
    """What a forward pass over random text and greedy decoding lose with each codec."""
    prompt = prompt_of(exact, 8)
    with torch.inference_mode():
        plain, said = logits_of(exact), Decoding(exact, 8).run(prompt)[0]
    log_p = plain.log_softmax(-1)
    say("codec   logits off by (rms of rms)   KL divergence   most likely token the same   decoded tokens the same")
    for codec in CODECS:
        group = dist.new_group(list(range(options.ranks)), backend="arcomm", pg_options=arcomm.torch_backend.Options(codec=codec))
        model = loaded(folder, group)
        logits = logits_of(model)
        served = group.communicator
        if served is None:
            raise RuntimeError(f"the group with {codec} does not use the daemon")
        with torch.inference_mode():
            theirs = Decoding(model, 8).run(prompt)[0]
        off = ((logits - plain).square().mean().sqrt() / plain.square().mean().sqrt()).item()
        divergence = (log_p.exp() * (log_p - logits.log_softmax(-1))).sum(-1).mean().item()
        same = (logits.argmax(-1) == plain.argmax(-1)).float().mean().item()
        say(f"{codec:<7} {off:26.4f} {divergence:15.5f} {same:28.3f} {(theirs == said).float().mean().item():25.3f}")
        if off == 0:
            raise RuntimeError(f"{codec} has not been used")
        synchronize()
        del model
        dist.barrier()
        dist.destroy_process_group(group)  # two communicators of the same GPUs have in-stream room by default


def main():
    if options.device == "cuda":
        torch.cuda.set_device(options.rank)
    arcomm.torch_backend.register()
    device = torch.device("cuda", options.rank) if options.device == "cuda" else None
    dist.init_process_group("arcomm", store=dist.FileStore(options.id_file + ".store", options.ranks), rank=options.rank,
                            world_size=options.ranks, timeout=datetime.timedelta(seconds=60), device_id=device)
    ours = dist.distributed_c10d._get_default_group()
    peer = "nccl" if options.device == "cuda" else "gloo"
    theirs = dist.new_group(list(range(options.ranks)), backend=peer)
    folder = options.id_file + ".model"
    if options.rank == 0:
        parameters = saved(folder)
        say(f"LlamaForCausalLM of {parameters / 1e6:.0f} M random parameters in bfloat16, transformers {transformers.__version__}, "
            f"torch {torch.__version__}, {options.ranks} ranks; tokens per second, the same tokens")
    dist.barrier()
    models = {"arcomm": loaded(folder, ours), peer: loaded(folder, theirs)}
    if ours.communicator is None:
        raise RuntimeError("the group does not use the daemon")
    serving(models)
    codecs(folder, models["arcomm"])
    if options.device == "cuda":
        ours.communicator.check()
    dist.barrier()
    synchronize()
    print(f"rank {options.rank}: a transformers model over arcomm says what it says over {peer}", flush=True)
    os._exit(0)  # graphs of NCCL's operations live on


if __name__ == "__main__":
    faulthandler.dump_traceback_later(200, exit=True)  # says where it hung
    try:
        main()
    except Exception as why:  # one line is all that the caller shows; the process group may hang in its own end
        traceback.print_exc()
        print(f"rank {options.rank}: FAILED: {type(why).__name__}: {why}", flush=True)
        os._exit(1)
