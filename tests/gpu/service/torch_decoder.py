"""A random tensor-parallel decoder, for what sums between GPUs are worth to serving."""
import time

import torch
import torch.distributed as dist


class Decoder(torch.nn.Module):
    """A random decoder of which each rank has a part of every layer, as in Megatron-LM; greedy, with a cache."""

    def __init__(self, rank, ranks, batch, layers=16, width=2048, heads=16, length=128, vocabulary=32000):
        super().__init__()
        torch.manual_seed(7)  # the whole model on every rank, of which it keeps its part
        self.heads, self.size, self.length = heads // ranks, width // heads, length

        def part(rows, columns, by_rows):
            whole = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * columns ** -0.5
            return whole.chunk(ranks, 0 if by_rows else 1)[rank].contiguous()
        self.embedding = torch.randn(vocabulary, width, device="cuda", dtype=torch.bfloat16)
        self.layers = [(part(width, width, True), part(width, width, True), part(width, width, True), part(width, width, False),
                        part(4 * width, width, True), part(width, 4 * width, False)) for _ in range(layers)]
        self.keys = [torch.zeros(batch, self.heads, length, self.size, device="cuda", dtype=torch.bfloat16) for _ in self.layers]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.places = torch.arange(length, device="cuda")

    def forward(self, token, place, group):
        """token: [batch]; place: [1], where it is put. Returns the next one."""
        functional = torch.nn.functional
        x = functional.embedding(token, self.embedding)
        mask = (self.places <= place)[None, None, None, :]
        for (q, k, v, o, up, down), keys, values in zip(self.layers, self.keys, self.values):
            y = functional.rms_norm(x, x.shape[-1:])
            shape = (x.shape[0], self.heads, 1, self.size)
            keys.index_copy_(2, place, functional.linear(y, k).view(shape))
            values.index_copy_(2, place, functional.linear(y, v).view(shape))
            y = functional.scaled_dot_product_attention(functional.linear(y, q).view(shape), keys, values, attn_mask=mask)
            y = functional.linear(y.reshape(x.shape[0], -1), o)
            dist.all_reduce(y, group=group)
            x = x + y
            y = functional.linear(functional.silu(functional.linear(functional.rms_norm(x, x.shape[-1:]), up)), down)
            dist.all_reduce(y, group=group)
            x = x + y
        return functional.linear(functional.rms_norm(x, x.shape[-1:]), self.embedding).argmax(-1)


@torch.inference_mode()
def decoded(model, batch, group, in_graph, tokens=100):
    """The tokens, and how many a second."""
    token = torch.arange(batch, device="cuda") + 5
    place = torch.zeros(1, dtype=torch.long, device="cuda")
    for _ in range(3):
        model(token, place, group)
    torch.cuda.synchronize()
    if in_graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(token, place, group)
    taken = []
    for _ in range(3):
        token.copy_(torch.arange(batch, device="cuda") + 5)
        place.zero_()
        said = []
        torch.cuda.synchronize()
        dist.barrier()
        before = time.perf_counter()
        for _ in range(tokens):
            if in_graph:
                graph.replay()
                following = result
            else:
                following = model(token, place, group)
            token.copy_(following)
            place += 1
            said.append(token.clone())
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - before)
    return torch.stack(said), batch * tokens / min(taken)
