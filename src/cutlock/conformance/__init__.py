"""The bond between specification and code: the real parts are stepped and compared.

Runtime and tooling meet here and nowhere else. Source: design, section 13.
"""
