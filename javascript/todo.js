// Sends the sizes on the page to the panel's estimate line, and marks the title of an enabled panel.
// Labels, defaults and formulas are in Python only.

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

    // On the tab "Resize by", img2img scales the size of the input image. Only the page knows that size.
    function scaled(fields) {
        const tab = byId("img2img_tab_resize_by");
        const image = gradioApp().querySelector("#mode_img2img > div:not([style*='none']) img");
        if (!tab || tab.style.display === "none" || !image?.naturalWidth) return fields;
        return {...fields, width: Math.floor(image.naturalWidth * fields.scale), height: Math.floor(image.naturalHeight * fields.scale)};
    }

    // Some WebUIs load the checkpoint with the first image: its infotext then asks for a new estimate.
    function lastModel(tab) {
        return byId(`html_info_${tab}`)?.textContent.match(/Model hash: (\w+)/)?.[1] || "";
    }

    function pageSizes(tab) {
        const fields = {model: lastModel(tab)};
        for (const [name, id] of Object.entries(FIELDS[tab])) fields[name] = number(id);
        if (tab === "img2img") return scaled(fields);
        return {...fields, hires: isOpen("txt2img_hr")};
    }

    function send(tab) {
        const field = byId(`todo_${tab}_page`)?.querySelector("textarea, input");
        if (!field) return;
        byId(`todo_${tab}`)?.classList.toggle("todo-active", isOpen(`todo_${tab}`));
        const text = JSON.stringify(pageSizes(tab));
        if (field.value === text) return;
        field.value = text;
        field.dispatchEvent(new Event("input", {bubbles: true}));
    }

    let timer = null;
    function sendSoon() {
        clearTimeout(timer);
        timer = setTimeout(() => Object.keys(FIELDS).forEach(send), 150);
    }

    onUiLoaded(() => {
        for (const event of ["input", "change", "click"]) gradioApp().addEventListener(event, sendSoon);
        sendSoon();
    });
    onAfterUiUpdate(sendSoon);
})();
