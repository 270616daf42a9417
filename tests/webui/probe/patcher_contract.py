"""What the extension needs of a patcher of the Forge family and of its blocks, observed and told as plain data.

The probe observes the real ones, tests/todo_core/hosts observes its double, and test_double.py compares the two.
"""

TOKENS, ROWS = 16, 2


class _Holder:
    def patch(self, n, keys, values, options):
        return n, keys, values


def _function(n, keys, values, options):
    return n, keys, values


def _patches(options):
    return options["transformer_options"].get("patches", {}).get("attn1_patch", [])


def of_patcher(patcher):
    """How ``clone`` and ``set_model_patch`` treat the options; the patcher is left as it was."""
    holder, before = _Holder(), patcher.model_options
    clone = patcher.clone()
    clone.set_model_patch(holder.patch, "attn1_patch")
    clone.set_model_patch(_function, "attn1_patch")
    *_, method, function = _patches(clone.clone().model_options)
    return {
        "the model is the same": clone.model is patcher.model,
        "the options are other objects": clone.model_options is not before,
        "the original has no patch": _function not in _patches(before),
        "a clone keeps a function": function is _function,
        "a clone copies the object of a method": method.__self__ is not holder,
    }


def of_block(block, run):
    """What a block hands to patches of self-attention; ``run(options)`` runs it on TOKENS tokens in ROWS rows."""
    seen = []

    def note(kind, *tensors):
        seen.append([kind, *(None if tensor is None else list(tensor.shape[:2]) for tensor in tensors)])

    def shorten(n, keys, values, options):
        note("patch", n, keys, values)
        seen.append(["keys and values are the input", keys is n and values is n])
        seen.append(["heads are told", "n_heads" in options])
        return n, keys[:, ::2], values[:, ::2]

    def again(n, keys, values, options):
        note("next patch", n, keys, values)
        return n, keys, values

    def output(n, options):
        note("output patch", n)
        return n

    def replace(q, keys, values, options):
        note("replacement", q, keys, values)
        return q

    patches = {"attn1_patch": [shorten, again], "attn1_output_patch": [output]}
    seen_by_attn1 = lambda _, args, kwargs: note("attn1", args[0], kwargs.get("context"), kwargs.get("value"))  # noqa: E731
    with block.attn1.register_forward_pre_hook(seen_by_attn1, with_kwargs=True):
        run({})
        run({"patches": patches})
        run({"patches": patches, "patches_replace": {"attn1": {None: replace}}})
    return seen
