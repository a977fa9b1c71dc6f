"""What a user knows, put together: `Options` with the rules file read and registered rules."""

from __future__ import annotations

import dataclasses

from tf_amp_rewriter import registry, rules_file
from tf_amp_rewriter.options import Options


def gathered(options: Options) -> Options:
    """Returns `options` with all of the user's rules as data; rules given there win.

    Raises:
        errors.FlagError: the rules file can't be read or has a wrong rule.
    """
    file_rules = options.file_rules
    if options.rules and not file_rules:
        file_rules = rules_file.read(options.rules)
    rules = {rule.op: rule for rule in (*registry.registered(), *options.registered)}
    return dataclasses.replace(options, file_rules=file_rules, registered=tuple(rules.values()))
