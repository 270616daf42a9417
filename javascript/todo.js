// Gathers what the page says about size and high-res fix for the panel's estimate, and marks an active panel.
// No labels, defaults or formulas: those are Python's.

(function () {
    "use strict";

    const FIELDS = {
        txt2img: {
            width: "txt2img_width", height: "txt2img_height", scale: "txt2img_hr_scale",
            resize_x: "txt2img_hr_resize_x", resize_y: "txt2img_hr_resize_y",
        },
        img2img: {width: "img2img_width", height: "img2img_height", scale: "img2img_scale"},
    };

    const byId = (id) => gradioApp().getElementById ? gradioApp().getElementById(id) : gradioApp().querySelector("#" + id);

    function number(id) {
        const input = byId(id)?.querySelector("input[type=number]");
        return input ? Number(input.value) : 0;
    }

    function isOpen(id) {
        return Boolean(byId(id + "-checkbox")?.querySelector("input")?.checked);
    }

    // img2img sizes by scale while that tab is shown; the picture's own size is the page's to know
    function scaled(fields) {
        const tab = byId("img2img_tab_resize_by");
        const image = gradioApp().querySelector("#mode_img2img > div:not([style*='none']) img");
        if (!tab || tab.style.display === "none" || !image?.naturalWidth) return fields;
        return {...fields, width: Math.floor(image.naturalWidth * fields.scale), height: Math.floor(image.naturalHeight * fields.scale)};
    }

    function gathered(tab) {
        const fields = {};
        for (const [name, id] of Object.entries(FIELDS[tab])) fields[name] = number(id);
        if (tab === "img2img") return scaled(fields);
        return {...fields, hires: isOpen("txt2img_hr")};
    }

    function tell(tab) {
        const page = byId(`todo_${tab}_page`)?.querySelector("textarea, input");
        if (!page) return;
        byId(`todo_${tab}`)?.classList.toggle("todo-active", isOpen(`todo_${tab}`));
        const text = JSON.stringify(gathered(tab));
        if (page.value === text) return;
        page.value = text;
        page.dispatchEvent(new Event("input", {bubbles: true}));
    }

    let waiting = null;
    function later() {
        clearTimeout(waiting);
        waiting = setTimeout(() => Object.keys(FIELDS).forEach(tell), 150);
    }

    onUiLoaded(() => {
        for (const event of ["input", "change", "click"]) gradioApp().addEventListener(event, later);
        later();
    });
    onAfterUiUpdate(later);
})();
