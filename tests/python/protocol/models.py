"""Lists of models, in the form of either maker."""

from datetime import datetime

import anthropic.types
import openai.types

from . import schema


def check_model(model, anthropics=False):
    """One model; returns its id."""
    if anthropics:
        assert {"type", "id", "display_name", "created_at"} <= set(model) and model["type"] == "model"
        assert datetime.fromisoformat(model["created_at"]).tzinfo
    else:
        schema.check(openai.types.Model, model)
        # Clients look for the size of the context under either name.
        assert model["max_model_len"] == model["context_length"] > 0
    return model["id"]


def check_models(models, anthropics=False):
    """A list; returns the ids."""
    ids = [check_model(model, anthropics) for model in models["data"]]
    if anthropics:
        assert (models["has_more"], models["first_id"], models["last_id"]) == (False, ids[0], ids[-1])
    else:
        assert models["object"] == "list"
    return ids
