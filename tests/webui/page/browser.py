"""The page in a headless Chromium: the panel's controls by setting name, and the buttons around them."""

import re

from todo_core.errors import SettingsError
from todo_core.settings import SETTINGS, Settings

PATIENCE = 300_000  # milliseconds; a slow machine must not fail a test
VIEWPORT = {"width": 1400, "height": 1200}
RENEWED = 20_000  # after these, a list that was to be clicked has been renewed, and is closed
STILL = "*, ::before, ::after { animation: none !important; transition: none !important; }"  # each frame costs CPU time


def opened(browser, url):
    """A page on which the WebUI is ready; errors of its scripts gather in ``page.errors``."""
    page = browser.new_page()
    page.set_viewport_size(VIEWPORT)
    page.set_default_timeout(PATIENCE)
    page.errors, page.questions = [], set()
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("websocket", lambda socket: _note(socket, page.questions))
    page.on("request", lambda request: page.questions.add(request) if "/run/" in request.url else None)
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: page.questions.discard(request))  # playwright marks the handler
    page.goto(url, wait_until="domcontentloaded")
    page.add_style_tag(content=STILL)
    wait_until_ready(page)
    return page


def _note(socket, questions):
    """Each event that goes through the WebUI's queue has a socket of its own; others are requests to /run/."""
    questions.add(socket)
    socket.on("close", lambda closed: questions.discard(closed))


def settle(page):
    """Until the WebUI has answered everything that the page has asked."""
    for _ in range(PATIENCE // 50):
        page.wait_for_timeout(50)
        if not page.questions:
            return
    raise TimeoutError(f"the WebUI did not answer {len(page.questions)} events of the page")


def close(page):
    """Leave the page when nothing is under way."""
    try:
        settle(page)
    finally:
        page.close()


def wait_until_ready(page):
    """Until the WebUI's own script has made the accordions out of their checkboxes."""
    page.wait_for_selector("#txt2img_generate", state="visible")
    page.wait_for_selector("#todo_txt2img-visible-checkbox", state="attached")


def open_tab(page, name):
    page.locator("#tabs > .tab-nav button", has_text=name).click()


class Panel:
    """The accordion of one tab."""

    def __init__(self, page, tab="txt2img"):
        self.page, self.tab = page, tab
        self.accordion = page.locator(f"#todo_{tab}")

    @property
    def enabled(self):
        return self.page.locator(f"#todo_{self.tab}-visible-checkbox").is_checked()

    def unfold(self):
        """A click on the accordion's title opens it and switches it on; then the fold."""
        self.accordion.locator(".label-wrap").first.click()
        self.unfold_more()

    def unfold_more(self):
        """A click on the title of the fold."""
        self.page.locator(f"#todo_{self.tab}_advanced .label-wrap").first.click()
        self.control("method").wait_for(state="visible")

    def switch(self, on):
        self.page.locator(f"#todo_{self.tab}-visible-checkbox").set_checked(on)

    def control(self, name):
        return self.page.locator(f"#todo_{self.tab}_{name}")

    def shown(self):
        """Names of the controls that can be seen."""
        return {name for name in SETTINGS if self.control(name).is_visible()}

    def wait_until_shown(self, names):
        """Until exactly these can be seen. ``names`` is a function: the WebUI's answer may set other controls too."""
        assert self.wait_until(lambda: self.shown() == names(), seconds=PATIENCE // 1000)

    def value(self, name):
        """A control's value as text; of a hidden one too."""
        control, kind = self.control(name), SETTINGS[name].kind
        if kind == "flag":
            return str(control.locator("input").is_checked())
        if kind == "choice" and control.locator("input[type=radio]").count():
            return control.locator("input[type=radio]:checked").get_attribute("value")
        number = control.locator("input[type=number]")
        return (number if number.count() else control.locator("input")).first.input_value()

    def values(self):
        """All controls, hidden ones too, and the switch."""
        return {"enabled": str(self.enabled), **{name: self.value(name) for name in SETTINGS}}

    def wait_until(self, holds, seconds=10):
        """Until the WebUI's answer makes ``holds()`` true, or for so long; whether it did."""
        for _ in range(10 * seconds):
            if holds():
                return True
            self.page.wait_for_timeout(100)
        return False

    def set(self, **settings):
        """Set controls as a user does, in this order: what is hidden cannot be set."""
        for name, value in settings.items():
            self._set(name, value)
            self.wait_until_shown(self.used)

    def used(self):
        """Names of the settings that have an effect beside the panel's present values, and with the sampler."""
        values = {name: self.value(name) for name in SETTINGS}
        used = set(Settings.parse({name: value for name, value in values.items() if _is_possible(name, value)}).used)
        used -= {"predict", "tolerance"} - self.shown()  # the sampler decides
        return used - {"passes"} if self.tab == "img2img" else used

    def _set(self, name, value):
        control, kind = self.control(name), SETTINGS[name].kind
        control.wait_for(state="visible")
        if kind == "flag":
            control.locator("input").set_checked(value)
        elif kind == "choice" and control.locator("input[type=radio]").count():
            control.locator(f'input[value="{value}"]').check()
        elif kind == "choice" or SETTINGS[name].has_auto:
            self.pick(name, str(value))
        else:
            field = control.locator("input[type=number], input[type=text]").first
            field.fill(str(value))
            field.blur()

    def pick(self, name, value):
        """Choose from a dropdown, or type what it does not list."""
        from playwright.sync_api import TimeoutError  # here: the module is read where there is no playwright too

        field, listed = self.control(name).locator("input"), self.control(name).locator(option(value))
        field.click()
        if listed.count():
            try:
                listed.click(timeout=RENEWED)
            except TimeoutError:  # an answer of the server has renewed the dropdown, which closes its list
                field.blur()
                field.click()
                listed.click()
        else:
            field.fill(value)
            field.press("Enter")
        field.blur()


def _is_possible(name, value):
    try:
        SETTINGS[name].parse(value)
    except SettingsError:
        return False
    return True


def option(value):
    """The selector of an entry of an open dropdown, in gradio 3 and 4."""
    return f'li:is([data-value="{value}"], [aria-label="{value}"])'


def fill_in(page, **fields):
    """Numbers and the prompt of the txt2img tab, by the WebUI's element names."""
    for name, value in fields.items():
        suffix = "textarea" if name == "prompt" else "input[type=number]"
        page.locator(f"#txt2img_{name} {suffix}").first.fill(str(value))


def open_hires(page):
    """Switch hires fix on."""
    page.locator("#txt2img_hr .label-wrap").first.click()
    page.wait_for_selector("#txt2img_hires_steps", state="visible")


def generate(page):
    """Click Generate; returns the infotext under the image when all is done."""
    page.click("#txt2img_generate")
    page.wait_for_selector("#txt2img_gallery img")
    page.wait_for_selector("#html_info_txt2img p")
    page.wait_for_selector("#txt2img_interrupt", state="hidden")
    return page.inner_text("#html_info_txt2img")


def choose_script(page, title):
    """Choose from the list of scripts of txt2img; Forge Classic spells X/Y/Z Plot in its own way."""
    page.locator("#txt2img_script_container #script_list input").click()
    options = page.locator("#txt2img_script_container #script_list li")
    options.filter(has_text=re.compile(title, re.IGNORECASE)).first.click()
