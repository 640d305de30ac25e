"""Writes infra/terraform/modules/api/routes.tf.json from the functions' routes, the table that OpenAPI is made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minitoolstream.host.functions import load_functions
from scripts import tools
from scripts.gen_functions import FUNCTIONS

FILE = Path("infra/terraform/modules/api/routes.tf.json")
_API = "aws_api_gateway_rest_api.this"


def routes() -> str:
    """One resource for each part of a path, a map of routes for the methods, and one of paths for what browsers ask."""
    resources: dict[str, Any] = {}
    found: dict[str, Any] = {}
    paths: dict[str, str] = {}
    deployed = [(function, route) for function, route in load_functions().routes if function in FUNCTIONS]
    for function, route in sorted(deployed, key=lambda item: (item[1].path, item[1].method)):
        parts = route.path.strip("/").split("/")
        for length in range(1, len(parts) + 1):
            parent = f"aws_api_gateway_resource.{_name(parts[: length - 1])}.id" if length > 1 else None
            resources[_name(parts[:length])] = {
                "rest_api_id": f"${{{_API}.id}}",
                "parent_id": f"${{{parent or f'{_API}.root_resource_id'}}}",
                "path_part": parts[length - 1],
            }
        paths[route.path] = f"${{aws_api_gateway_resource.{_name(parts)}.id}}"
        found[f"{route.method} {route.path}"] = {
            "function": function,
            "method": route.method,
            "resource_id": paths[route.path],
        }
    local = {"routes": found, "paths": paths}
    content = {"locals": local, "resource": {"aws_api_gateway_resource": dict(sorted(resources.items()))}}
    return json.dumps(content, indent=2) + "\n"


def _name(parts: list[str]) -> str:
    return "_".join(part.strip("{}").replace("-", "_") for part in parts)


if __name__ == "__main__":
    (tools.ROOT / FILE).write_text(routes(), "utf-8")
