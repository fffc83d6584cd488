"""A whole language model, trained: seconds per case."""

from properties.language_model import language_model, language_model_sp
from properties.training import adamw, halved, trained
from tpcheck import Norm, Training

language_model_adamw = trained(language_model, Training(adamw, steps=3, schedule=halved), Norm())
language_model_sp_adamw = trained(language_model_sp, Training(adamw), Norm())
