// What the WebUI's own page offers to scripts, as far as this extension uses it, and its accordions with a checkbox.
const loaded = [], updated = [];
function gradioApp() { return document; }
function onUiLoaded(callback) { loaded.push(callback); }
function onAfterUiUpdate(callback) { updated.push(callback); }

function tie(accordion) {
    const title = accordion.querySelector(".label-wrap");
    const hidden = document.querySelector("#" + accordion.id + "-checkbox input");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.id = accordion.id + "-visible-checkbox";
    const isOpen = () => title.classList.contains("open");
    const pass = () => {
        if (hidden.checked !== box.checked) hidden.click();
    };
    box.checked = isOpen();
    box.addEventListener("click", (event) => event.stopPropagation());
    box.addEventListener("input", pass);
    new MutationObserver(() => { box.checked = isOpen(); pass(); }).observe(title, {attributeFilter: ["class"]});
    title.querySelector("span").prepend(box);
    const extra = document.querySelector("#" + accordion.id + "-extra");
    if (extra) title.insertBefore(extra, title.lastElementChild);
}

const waiting = setInterval(() => {
    const accordions = document.querySelectorAll(".input-accordion");
    if (!document.querySelector("#txt2img_generate") || accordions.length < 3) return;
    clearInterval(waiting);
    accordions.forEach(tie);
    loaded.forEach((callback) => callback());
    let soon;
    const later = () => { clearTimeout(soon); soon = setTimeout(() => updated.forEach((callback) => callback()), 200); };
    new MutationObserver(later).observe(document.body, {childList: true, subtree: true});
}, 50);
