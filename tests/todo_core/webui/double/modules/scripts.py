"""Script and the order in which the WebUI calls its methods."""

AlwaysVisible = object()
scripts_data = []
folder = None  # of the extension that is being loaded


def basedir():
    return folder


class Script:
    is_img2img = False  # the WebUI sets it to the tab of this instance
    infotext_fields = None
    paste_field_names = None

    def title(self):
        raise NotImplementedError

    def ui(self, is_img2img):
        pass

    def show(self, is_img2img):
        return True

    def before_process(self, p, *args):
        pass

    def process(self, p, *args):
        pass

    def before_process_batch(self, p, *args, **kwargs):
        pass

    def process_batch(self, p, *args, **kwargs):
        pass

    def process_before_every_sampling(self, p, *args, **kwargs):
        pass

    def post_sample(self, p, ps, *args):
        pass

    def postprocess_batch(self, p, *args, **kwargs):
        pass

    def postprocess(self, p, processed, *args):
        pass
