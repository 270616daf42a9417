"""What the node needs of a sampling in ComfyUI, observed and told as plain data.

The probe observes the real one, tests/todo_core/comfyui its double, and tests/comfyui/test_double.py compares the two.
"""

KEY = "todo_contract"
NOT_NEEDED = {"latent_shapes"}  # a keyword of newer versions


def watch(patcher, wrappers, add_to_options):
    """A clone of ``patcher`` that notes what its next sampling does, and the list that it notes it in.

    ``wrappers`` is WrappersMP, ``add_to_options`` is ``add_wrapper_with_key``.
    """
    clone, seen = patcher.clone(), []

    def sample(executor, *args, **kwargs):
        guider, sigmas = executor.class_obj, args[3].tolist()
        seen.append(["sampling", len(args), sorted(kwargs.keys() - NOT_NEEDED), args[0].ndim, type(args[7]).__name__])
        seen.append(["the options are not the patcher's", guider.model_options is not clone.model_options])
        seen.append(["conditions", {name: [type(one).__name__ for one in of] for name, of in guider.conds.items()}])

        def step(executor, x, sigma, model_options=None, seed=None):
            options = model_options["transformer_options"]
            seen.append(["step", list(x.shape), list(sigma.shape), sigmas.index(float(sigma[0])), type(seed).__name__])
            seen.append(["the sigmas are told", options["sample_sigmas"].tolist() == sigmas])
            patches = {"patches": {"attn1_patch": [patch]}, "patches_replace": {"attn1": {("middle", 0): replace}}}
            return executor(x, sigma, {**model_options, "transformer_options": {**options, **patches}}, seed)

        def unet(executor, *args, **kwargs):
            seen.append(["unet", len(args), sorted(kwargs), list(args[0].shape), list(args[1].shape)])
            seen.append(["replacements are told", list(args[5]["patches_replace"]["attn1"]) == [("middle", 0)]])
            args[5][KEY] = True
            return executor(*args, **kwargs)

        add_to_options(wrappers.PREDICT_NOISE, KEY, step, guider.model_options, is_model_options=True)
        add_to_options(wrappers.DIFFUSION_MODEL, KEY, unet, guider.model_options, is_model_options=True)
        result = executor(*args, **kwargs)
        seen.append(["the sampling is over"])
        return result

    def patch(x, keys, values, options):
        block = [options["block"][0], options["block_index"]]
        told = options.get(KEY), "patches" in options, "patches_replace" in options
        if block[0] in ("input", "middle"):
            seen.append(["patch", block[0], keys is x and values is x, *told])
        return x, keys[:, ::2], values[:, ::2]

    def replace(queries, keys, values, options):
        seen.append(["replacement", queries.shape[1] > keys.shape[1], values.shape == keys.shape])
        return queries

    clone.remove_wrappers_with_key(wrappers.OUTER_SAMPLE, KEY)
    clone.add_wrapper_with_key(wrappers.OUTER_SAMPLE, KEY, sample)
    return clone, seen


def without_repeats(seen):
    """Each fact once in a row: a model has any number of blocks."""
    return [fact for i, fact in enumerate(seen) if i == 0 or fact != seen[i - 1]]
