"""Running a generation, as far as a script of the dropdown sees it. ``run`` is set by the test."""

import json
from itertools import chain

run = None


def process_images(p):
    return run(p)


def fix_seed(p):
    p.seed, p.subseed = (4 if seed == -1 else seed for seed in (p.seed, p.subseed))


def create_infotext(p, all_prompts, all_seeds, all_subseeds):
    pairs = chain([("Seed", all_seeds[0])], p.extra_generation_params.items())
    return ", ".join(f"{key}: {value}" for key, value in pairs)


class Processed:
    index_of_first_image, infotexts, all_seeds = 0, (), ()

    def __init__(self, p, images_list, seed=-1, info="", **more):
        self.images, self.seed, self.info, self.prompt = images_list, seed, info, p.prompt
        vars(self).update(more)
        self.comments = "".join(f"{comment}\n" for comment in p.comments)
        self.extra_generation_params = p.extra_generation_params

    def js(self):
        return json.dumps({"infotexts": self.infotexts, "all_seeds": self.all_seeds})
