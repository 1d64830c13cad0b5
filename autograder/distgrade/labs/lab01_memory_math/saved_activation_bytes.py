"""Bytes that autograd keeps for backward: `saved_activation_bytes(module, *inputs) -> int`.

The module runs forward once. A memory counts once and whole, however many saved tensors look at it;
the module's parameters and buffers, and views of them, do not count. Units: bytes. Source: PyTorch,
"Autograd mechanics", saved tensors and hooks. Oracle: what each module's backward needs is derived
by hand, and its tensors' sizes multiplied out.
"""

from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("saved_activation_bytes",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers of bytes")
CREDIT = {"tensors": 2, "shared memory": 2, "not activations": 2}
CASES = (
    Case("two inputs", "tensors", kind="product", rows=3, width=5),
    Case("norm and dropout", "tensors", kind="norm and dropout", rows=4, width=6),
    Case("indices", "tensors", kind="indices", rows=7, width=3),
    Case("BF16 on the meta device", "tensors", kind="meta", rows=2_048, width=512),
    Case("one tensor, twice", "shared memory", kind="square", rows=5, width=4),
    Case("a tensor and its transpose", "shared memory", kind="transpose", rows=3, width=7),
    Case("views of one memory", "shared memory", kind="views", rows=2, width=6),
    Case("half of a memory", "shared memory", kind="half", rows=4, width=8),
    Case("a linear layer", "not activations", kind="linear", rows=4, width=9),
    Case("part of a weight", "not activations", kind="part", rows=3, width=8),
    Case("a frozen layer", "not activations", kind="frozen", rows=6, width=4),
    Case("a buffer", "not activations", kind="buffer", rows=5, width=3),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: more rows.
    extra = int(integers((1,), "saved", case.name, seed, low=1, high=99)[0]) if seed else 0
    return {"kind": case.kind, "rows": case.rows + extra, "width": case.width}


def observe(student, given):
    import torch
    from torch import nn
    from torch.nn import functional

    rows, width = given["rows"], given["width"]

    class Told(nn.Module):
        def __init__(self, forward, **parts):
            super().__init__()
            self.told = forward
            for name, part in parts.items():
                if isinstance(part, torch.Tensor):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

        def forward(self, *inputs):
            return self.told(self, *inputs)

    def norm_and_dropout(m, x):
        return torch.native_dropout(m.norm(x), 0.5, True)[0]

    def transpose(m, x):
        y = x.exp()
        return y @ y.mT

    def views(m, x):
        y = x + 1.0
        left, right = y.chunk(2, dim=-1)
        return left.square(), y.square(), right.square()

    def half(m, x):
        return (x + 1.0).chunk(2, dim=-1)[0].square()

    def mlp(device):
        with torch.device(device):
            layers = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        return nn.Sequential(*layers)

    x = torch.ones(rows, width, requires_grad=True)
    linear = nn.Linear(width, 2 * width)
    match given["kind"]:
        case "product":
            y = torch.ones(rows, width, dtype=torch.float64, requires_grad=True)
            module, inputs = Told(lambda m, x, y: x.double() * y), (x, y)
        case "norm and dropout":
            module, inputs = Told(norm_and_dropout, norm=nn.LayerNorm(width)), (x,)
        case "indices":
            module, inputs = nn.Embedding(11, width), (torch.arange(rows) % 11,)
        case "meta":
            module = mlp("meta").bfloat16()
            inputs = (torch.ones(rows, width, dtype=torch.bfloat16, device="meta"),)
        case "square":
            module, inputs = Told(lambda m, x: x * x), (x,)
        case "transpose":
            module, inputs = Told(transpose), (x,)
        case "views":
            module, inputs = Told(views), (x,)
        case "half":
            module, inputs = Told(half), (x,)
        case "linear":
            module, inputs = linear, (x,)
        case "part":

            def forward(m, x):
                return functional.linear(x, m.linear.weight[1:]) + x @ m.linear.weight.T[:, 2:3]

            module, inputs = Told(forward, linear=linear), (x,)
        case "frozen":
            module = nn.Sequential(linear.requires_grad_(False), nn.GELU())
            inputs = (x,)
        case "buffer":
            module = Told(lambda m, x: (x * m.scale).exp(), scale=torch.ones(rows, 1))
            inputs = (x,)
    return {"bytes": student.saved_activation_bytes(module, *inputs)}


def oracle(case, given):
    rows, width = given["rows"], given["width"]
    numbers = rows * width
    # What backward needs: the tensors' (numbers, bytes of each).
    needs = {
        "product": [(numbers, 8), (numbers, 8)],  # both factors, in double precision
        # A norm's input, mean and 1/deviation of each row; dropout's mask.
        "norm and dropout": [(numbers, 4), (rows, 4), (rows, 4), (numbers, 1)],
        "indices": [(rows, 8)],
        "meta": [(numbers, 2), (4 * numbers, 2), (4 * numbers, 2)],  # inputs of all three
        "square": [(numbers, 4)],
        "transpose": [(numbers, 4)],  # exp's own result is what both factors look at
        "views": [(numbers, 4)],  # its halves lie inside it
        "half": [(numbers, 4)],  # the half that is needed keeps the other one in memory
        "linear": [(numbers, 4)],  # the weight's gradient needs x
        "part": [(numbers, 4)],
        "frozen": [
            (2 * numbers, 4)
        ],  # no gradient for the weight: x is not needed, GELU's input is
        "buffer": [(numbers, 4)],  # the buffer is a buffer; exp keeps its result
    }
    return {"bytes": sum(count * each for count, each in needs[given["kind"]])}


@wrong("Tensors that look at one memory are counted once each: count the memory, once.")
def every_saved_tensor():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        sizes = []

        def pack(x):
            if x.untyped_storage()._cdata not in own_storages:
                sizes.append(x.numel() * x.element_size())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            module(*inputs)
        return sum(sizes)

    return saved_activation_bytes


@wrong("Parameters and buffers are saved for backward too, but are no activations: leave them out.")
def parameters_counted():
    import torch

    def saved_activation_bytes(module, *inputs):
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            kept[storage._cdata] = storage
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(storage.nbytes() for storage in kept.values())

    return saved_activation_bytes


@wrong("A weight is often kept as a view of it, W.T or a part: compare memories, not tensors.")
def views_of_parameters():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_ids = {id(x) for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if id(x) not in own_ids:
                kept[storage._cdata] = storage
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(storage.nbytes() for storage in kept.values())

    return saved_activation_bytes


@wrong("A buffer belongs to the module: it is there without backward, too.")
def buffers_counted():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[storage._cdata] = storage
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(storage.nbytes() for storage in kept.values())

    return saved_activation_bytes


@wrong(
    "On the meta device every address is 0, so all tensors there look like one: use the storage."
)
def by_address():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[x.data_ptr()] = storage
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(storage.nbytes() for storage in kept.values())

    return saved_activation_bytes


@wrong("Of several views the last one counts here: count the memory under them, whole.")
def last_view_wins():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[storage._cdata] = x
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(x.numel() * x.element_size() for x in kept.values())

    return saved_activation_bytes


@wrong("Half a tensor keeps its whole memory: ask the storage for its bytes, not the view.")
def largest_view():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                seen = kept.get(storage._cdata, 0)
                kept[storage._cdata] = max(seen, x.numel() * x.element_size())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(kept.values())

    return saved_activation_bytes


@wrong("These are numbers, not bytes: a number has 1, 2, 4 or 8 of them.")
def numbers():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[storage._cdata] = storage, x.element_size()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(storage.nbytes() // size for storage, size in kept.values())

    return saved_activation_bytes


@wrong("Not every number has 4 bytes: BF16 has 2, a mask 1, an index 8.")
def four_bytes_each():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[storage._cdata] = storage, x.element_size()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(4 * storage.nbytes() // size for storage, size in kept.values())

    return saved_activation_bytes


@wrong("An input that backward needs is kept like any other tensor.")
def inputs_left_out():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers(), *inputs]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[storage._cdata] = storage
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        del output
        return sum(storage.nbytes() for storage in kept.values())

    return saved_activation_bytes


@wrong("The output is not kept for backward unless some step needs it: the hook tells.")
def outputs_counted():
    import torch

    def saved_activation_bytes(module, *inputs):
        own = [*module.parameters(), *module.buffers()]
        own_storages = {x.untyped_storage()._cdata for x in own}
        kept = {}

        def pack(x):
            storage = x.untyped_storage()
            if storage._cdata not in own_storages:
                kept[storage._cdata] = storage
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            output = module(*inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        for x in outputs:
            kept[x.untyped_storage()._cdata] = x.untyped_storage()
        return sum(storage.nbytes() for storage in kept.values())

    return saved_activation_bytes


@wrong(
    "What autograd keeps lies inside the module: a hook sees it, inputs and output don't show it."
)
def inputs_and_outputs():
    def saved_activation_bytes(module, *inputs):
        output = module(*inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        return sum(x.numel() * x.element_size() for x in [*inputs, *outputs])

    return saved_activation_bytes


@also_right("all storages in a list, told apart by weak references afterwards")
def storages_by_weak_reference():
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    def saved_activation_bytes(module, *inputs):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(seen.append, lambda x: x):
            module(*inputs)
        memories = {StorageWeakRef(x.untyped_storage()): x.untyped_storage() for x in seen}
        for x in [*module.parameters(), *module.buffers()]:
            memories.pop(StorageWeakRef(x.untyped_storage()), None)
        return sum(memory.nbytes() for memory in memories.values())

    return saved_activation_bytes


@also_right("no hooks: the graph's nodes are asked for what they saved")
def walking_the_graph():
    import torch

    def saved_activation_bytes(module, *inputs):
        output = module(*inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        nodes, memories = [x.grad_fn for x in outputs], {}
        while nodes:
            node = nodes.pop()
            if node is None:
                continue
            nodes.extend(parent for parent, _ in node.next_functions)
            for name in dir(node):
                if name.startswith("_saved_"):
                    value = getattr(node, name)
                    if isinstance(value, torch.Tensor):
                        memories[value.untyped_storage()._cdata] = value.untyped_storage()
        for x in [*module.parameters(), *module.buffers()]:
            memories.pop(x.untyped_storage()._cdata, None)
        return sum(memory.nbytes() for memory in memories.values())

    return saved_activation_bytes


EQUIVALENT = {
    "saved_activation_bytes.pack: return x -> pass": "backward never runs; kept holds the storages",
}
