"""python -m headrace.lm_eval: the command line of lm_eval, which knows the model `headrace` then."""

from lm_eval.__main__ import cli_evaluate

import headrace.lm_eval  # noqa: F401  registers it

cli_evaluate()
