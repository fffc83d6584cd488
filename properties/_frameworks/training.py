"""A whole language model, DTensors and pipeline stages, trained: seconds per case."""

from properties._frameworks.compositions import tp_pipeline
from properties._frameworks.dtensor import dtensor_mlp_norm
from properties.language_model import language_model, language_model_sp
from properties.training import adamw, halved, trained
from tpcheck import Norm, Training

language_model_adamw = trained(language_model, Training(adamw, steps=3, schedule=halved), Norm())
language_model_sp_adamw = trained(language_model_sp, Training(adamw), Norm())
dtensor_mlp_adamw = trained(dtensor_mlp_norm, Training(adamw))
tp_pipeline_adamw = trained(tp_pipeline, Training(adamw))
