"""The X/Y/Z plot of the real WebUI, through its API: each cell has its own settings, and says so."""

import numpy as np

FEW = {"steps": 2, "hr_second_pass_steps": 8}
X, Y = ("[ToDo] Factor, level 1", ["1", "2"]), ("[ToDo] Enabled", ["True", "False"])


def test_each_cell_has_its_settings_and_its_line(webui):
    scripts = webui.get("/sdapi/v1/script-info")
    arguments = next(s["args"] for s in scripts if s["name"] == "x/y/z plot" and not s["is_img2img"])
    axes = next(arg["choices"] for arg in arguments if arg["label"] == "X type")  # in the order of the API's numbers
    args = [each for name, values in (X, Y, ("Nothing", [])) for each in (axes.index(name), ", ".join(values), values)]
    # those behind the axes differ between the WebUIs
    args += [each["label"] == "Include Sub Images" or each["value"] for each in arguments[len(args) :]]
    result = webui.txt2img(script_name="x/y/z plot", script_args=args, **FEW)
    _, *texts = result.info["infotexts"]
    assert ["ToDo factor 1: 2" in text for text in texts] == [False, True, False, False]
    grid, plain, reduced, *off = result.pictures
    assert [np.array_equal(plain, each) for each in off] == [True, True]
    assert np.array_equal(reduced, webui.txt2img({"factor_1": 2}, **FEW).pixels[0])
    first, second = (line for line in result.comments.splitlines() if "ToDo" in line)
    assert first.startswith("ToDo with Factor, level 1 = 1; Enabled = True: found nothing to reduce")
    assert second.startswith("ToDo with Factor, level 1 = 2; Enabled = True: reduced the hires pass")
