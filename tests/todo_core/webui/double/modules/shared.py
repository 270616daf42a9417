"""The model of the moment, the user's options, and what the WebUI is doing."""

from types import SimpleNamespace

sd_model = None


class OptionInfo:
    def __init__(self, default, label):
        self.default, self.label = default, label


class Options:
    """Values by attribute; an unknown name is an AttributeError."""

    def __init__(self):
        self.__dict__.update(data={}, data_labels={})
        self.reset()

    def reset(self):
        """As after the WebUI's start, without extensions."""
        self.data_labels.clear()
        self.data.clear()
        self.data.update(
            token_merging_ratio=0.0,
            token_merging_ratio_hr=0.0,
            grid_save=True,
            grid_format="png",
            img_max_size_mp=200,
            grid_background_color="#ffffff",
        )

    def add_option(self, key, info):
        self.data_labels[key] = info
        self.data.setdefault(key, info.default)

    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.data[name] = value


class State(SimpleNamespace):
    def begin(self):
        self.__dict__.update(time_start=1.0, interrupted=False, skipped=False, stopping_generation=False)
        self.__dict__.update(job="", job_no=0, job_count=-1, textinfo=None)


opts = Options()
state = State()
state.begin()
