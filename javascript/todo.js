// Asks for the line in the panel's header, one question at a time.
// Labels, defaults and formulas are in Python only.

(function () {
    "use strict";

    const FIELDS = {
        txt2img: {
            width: "txt2img_width", height: "txt2img_height", scale: "txt2img_hr_scale",
            resize_x: "txt2img_hr_resize_x", resize_y: "txt2img_hr_resize_y",
            steps: "txt2img_steps", hires_steps: "txt2img_hires_steps", hires_denoising: "txt2img_denoising_strength",
        },
        img2img: {
            width: "img2img_width", height: "img2img_height", scale: "img2img_scale",
            steps: "img2img_steps", denoising: "img2img_denoising_strength",
        },
    };
    const CHOICES = {
        txt2img: {
            sampler: "txt2img_sampling", scheduler: "txt2img_scheduler",
            hires_sampler: "hr_sampler", hires_scheduler: "hr_scheduler",
        },
        img2img: {sampler: "img2img_sampling", scheduler: "img2img_scheduler"},
    };
    const ALTERNATES = /(?<!\\)\[[^\[\]]*\|/;  // "[a|b]": another prompt in each step
    const SAME = /^Use same /;  // sampler, scheduler
    const PATIENCE = 10000, RETRY = 3000, DELAY = 150, POLL = 1000;  // milliseconds

    const byId = (id) => gradioApp().getElementById ? gradioApp().getElementById(id) : gradioApp().querySelector("#" + id);

    function number(id) {
        const input = byId(id)?.querySelector("input[type=number]");
        return input ? Number(input.value) : 0;
    }

    // The WebUI shows samplers in a dropdown, or by an option as radio buttons.
    function choice(id) {
        const box = byId(id), chosen = box?.querySelector("input:checked") ?? box?.querySelector("input:not([type=radio])");
        return chosen && !SAME.test(chosen.value) ? chosen.value : "";
    }

    const promptOf = (id) => byId(id)?.querySelector("textarea")?.value;

    function isOn(id) {
        return Boolean(byId(id + "-checkbox")?.querySelector("input")?.checked);
    }

    // On the tab "Resize by", img2img scales the size of the input image. Only the page knows that size.
    function scaled(fields) {
        const tab = byId("img2img_tab_resize_by");
        const image = gradioApp().querySelector("#mode_img2img > div:not([style*='none']) img");
        if (!tab || tab.style.display === "none" || !image?.naturalWidth) return fields;
        return {...fields, width: Math.floor(image.naturalWidth * fields.scale), height: Math.floor(image.naturalHeight * fields.scale)};
    }

    // What else decides whether steps can be predicted.
    function obstacles(tab) {
        const controlnet = gradioApp().querySelector(`[id^="${tab}_controlnet"][id$="_enable_checkbox"] input:checked`);
        const prompts = [promptOf(tab + "_prompt"), promptOf(tab + "_neg_prompt")];
        const hiresPrompts = [promptOf("hires_prompt") || prompts[0], promptOf("hires_neg_prompt") || prompts[1]];
        const alternates = (texts) => texts.some((text) => ALTERNATES.test(text));
        return {alternates: alternates(prompts), hires_alternates: alternates(hiresPrompts), controlnet: Boolean(controlnet)};
    }

    function pageFields(tab) {
        const fields = obstacles(tab);
        for (const [name, id] of Object.entries(FIELDS[tab])) fields[name] = number(id);
        for (const [name, id] of Object.entries(CHOICES[tab])) fields[name] = choice(id);
        if (tab === "img2img") return scaled(fields);
        const refine = byId("txt2img_enable_hr")?.querySelector("input");  // SD.Next's hires fix
        if (!refine) return {...fields, hires: isOn("txt2img_hr"), upscale_button: Boolean(byId("txt2img_upscale"))};
        const [resize_x, resize_y] = [number("txt2img_resize_width"), number("txt2img_resize_height")];
        const hires_steps = number("txt2img_steps_alt");
        return {...fields, hires: refine.checked, scale: number("txt2img_scale"), resize_x, resize_y, hires_steps};
    }

    // What decides the answer beside the fields and the controls: the checkpoint. A generation may load another one.
    function modelOfPage(tab) {
        const chosen = typeof opts === "object" ? opts.sd_checkpoint_hash || opts.sd_model_checkpoint : "";
        return `${chosen} ${byId("html_log_" + tab)?.textContent}`;
    }

    // One question a tab is under way at most, so answers cannot overtake each other. "due" is a newer question.
    class Questions {
        constructor(tab) {
            Object.assign(this, {tab, count: 0, asked: "", askedAt: 0, due: true});
        }

        get answer() {
            return byId(`todo_${this.tab}_line`)?.querySelector("[data-question]")?.dataset ?? {};
        }

        get answered() {
            return Number(this.answer.question || 0);
        }

        ask() {
            const field = byId(`todo_${this.tab}_page`)?.querySelector("textarea, input");
            if (!field) return;
            byId(`todo_${this.tab}`)?.classList.toggle("todo-active", isOn(`todo_${this.tab}`));
            const fields = pageFields(this.tab), text = JSON.stringify(fields) + modelOfPage(this.tab);
            const waiting = this.answered !== this.count && Date.now() - this.askedAt < PATIENCE;
            const again = "askAgain" in this.answer && Date.now() - this.askedAt > RETRY;
            if (waiting || !(this.due || again || text !== this.asked || this.answered !== this.count)) return;
            Object.assign(this, {asked: text, askedAt: Date.now(), due: false, count: this.count + 1});
            field.value = JSON.stringify({...fields, question: this.count});
            field.dispatchEvent(new Event("input", {bubbles: true}));
        }
    }

    const questions = Object.keys(FIELDS).map((tab) => new Questions(tab));
    let timer = null;
    // The first event starts the timer and later ones do not put it off: a page may change all the time.
    function askSoon() {
        timer ??= setTimeout(() => {
            timer = null;
            questions.forEach((each) => each.ask());
        }, DELAY);
    }

    window.todoAskSoon = () => {
        for (const each of questions) each.due = true;
        askSoon();
    };

    onUiLoaded(() => {
        for (const event of ["input", "change", "click"]) gradioApp().addEventListener(event, askSoon);
        if (typeof onOptionsChanged === "function") onOptionsChanged(window.todoAskSoon);
        window.addEventListener("focus", window.todoAskSoon);  // another browser tab may have changed presets or options
        setInterval(askSoon, POLL);  // a pasted value comes without an event
        askSoon();
    });
    onAfterUiUpdate(askSoon);
})();
