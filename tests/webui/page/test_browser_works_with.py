"""What has no API: the batch tab, and Compare by the upscale button."""

import base64
import re

from PIL import Image

from ..helpers import lengths, reduced, todo_keys
from . import browser as web
from .test_browser import page, shots  # noqa: F401  fixtures
from .test_browser_scripts import wait_until_done


def test_every_image_of_the_batch_tab_is_reduced(webui, page, tmp_path):  # noqa: F811
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    for seed in (1, 2):
        made = webui.txt2img(seed=seed, enable_hr=False, steps=2, width=128, height=128)
        (tmp_path / "in" / f"{seed}.png").write_bytes(base64.b64decode(made.base64_images[0]))

    web.open_tab(page, "img2img")
    page.locator("#mode_img2img > .tab-nav button", has_text="Batch").click()
    from_folder = page.locator("#img2img_batch_source > .tab-nav button", has_text="From directory")
    if from_folder.count():  # Forge Classic and reForge know no other source
        from_folder.click()
    page.fill("#img2img_batch_input_dir textarea", str(tmp_path / "in"))
    page.fill("#img2img_batch_output_dir textarea", str(tmp_path / "out"))
    page.locator("#img2img_steps input[type=number]").fill("4")
    for side in ("width", "height"):
        page.locator(f"#img2img_{side} input[type=number]").fill("128")
    panel = web.Panel(page, "img2img")
    panel.unfold()
    panel.set(factor_1=2)
    webui.start()
    page.click("#img2img_generate")
    page.wait_for_selector("#html_info_img2img p")
    page.wait_for_selector("#img2img_interrupt", state="hidden")

    written = sorted((tmp_path / "out").glob("*.png"))
    assert len(written) == 2
    for path in written:
        assert todo_keys(Image.open(path).info["parameters"])["ToDo method"] == "downsample"
    events = webui.events()
    assert {tuple(sorted(reduced([step]))) for step in events} == {((256, 64),)}


def test_compare_by_the_upscale_button(webui, page, shots):  # noqa: F811
    web.fill_in(page, prompt="a cat", steps=2, width=128, height=128, seed=1)
    web.generate(page)
    web.choose_script(page, "ToDo compare")
    page.wait_for_selector("#todo_compare_txt2img_presets", state="visible")
    webui.start()
    web.upscale(page, until="#html_log_txt2img:has-text('ToMe paper: ')")  # no table: the WebUI drops its numbers
    wait_until_done(page)
    page.screenshot(path=shots / "compare-upscale.png", full_page=True)
    comments = page.inner_text("#html_log_txt2img")
    for name in ("baseline", "ToDo balanced", "ToDo fast", "ToMe paper"):
        assert re.search(rf"{name}: [0-9.]+ ± [0-9.]+ s", comments)
    assert page.locator("#txt2img_gallery .thumbnail-small").count() == 5  # the grid, then each variant's
    events = webui.events()
    assert all(step["hires"] for step in events)
    assert (512, 512) in lengths(events), "ToMe paper merges half of the queries too"
