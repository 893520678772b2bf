"""Bounds on the accuracy of a policy on new prompts: tails inverted in log space, rounded against the claim."""

from pacbayes.bounds.accuracy import ACCURACY_BOUNDS, certified_accuracy
from pacbayes.bounds.binomial import binomial_risk_lower, binomial_risk_upper, log_failure_probability
from pacbayes.bounds.concentration import (
    catoni_risk_upper,
    gaussian_kl,
    hoeffding_risk_upper,
    kl_risk_upper,
    maurer_seeger_risk_upper,
    pac_bayes_kl_risk_upper,
)

__all__ = [
    "ACCURACY_BOUNDS",
    "binomial_risk_lower",
    "binomial_risk_upper",
    "catoni_risk_upper",
    "certified_accuracy",
    "gaussian_kl",
    "hoeffding_risk_upper",
    "kl_risk_upper",
    "log_failure_probability",
    "maurer_seeger_risk_upper",
    "pac_bayes_kl_risk_upper",
]
