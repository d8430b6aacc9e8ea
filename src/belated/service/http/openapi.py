"""Operations of the API, and the OpenAPI 3.1 document of all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from belated.core.arguments import wrong
from belated.service.http import problems as kinds
from belated.service.http.problems import ProblemDocument, ProblemType

REF = "#/components/schemas/{name}"
SECURITY_SCHEMES = {
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}
EVERY_ANSWER: dict[str, Any] = {"X-Request-ID": {"required": True, "schema": {"type": "string"}}}
HEADERS: dict[int, dict[str, Any]] = {  # of answers with these statuses
    401: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    429: {"Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}}},
    503: {"Retry-After": {"schema": {"type": "integer", "minimum": 1}}},
}


@dataclass(frozen=True)
class Link:
    """A link from an answer to an operation that uses it.

    ``parameters`` maps names to runtime expressions, as in ``{"id": "$response.body#/id"}``;
    ``body`` may hold such expressions, too.
    """

    operation: str  # name of its handler
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Everything that is declared about one method of one path."""

    id: str
    summary: str
    description: str
    method: str
    path: str
    path_type: Any  # a Struct; None: the path has no parameters
    query_type: Any  # a Struct; None: no query is allowed
    body_type: Any  # None: no body is read
    answers: Mapping[int, Any]  # types; a str is a media type; None: no body
    problems: tuple[ProblemType, ...]
    needs: str | None  # scope of the key; None: no key
    max_bytes: int
    links: tuple[Link, ...]
    takes: tuple[str, ...] = ()  # media types of a body that is a file

    @property
    def parameter_types(self) -> list[tuple[str, Any]]:
        """Returns the places of parameters, each with the Struct of those there."""
        both = [("path", self.path_type), ("query", self.query_type)]
        return [(where, type) for where, type in both if type is not None]

    @property
    def body_types(self) -> list[Any]:
        """Types of all bodies that are JSON."""
        bodies = [self.body_type, *self.answers.values()]
        return [type for type in bodies if type is not None and not isinstance(type, str)]

    def possible_problems(self, secured: bool) -> list[ProblemType]:
        """Returns the problems by status: those declared, and those of every such operation."""
        found = {
            kinds.ADDRESS_TOO_LONG,
            kinds.HEADERS_TOO_LARGE,
            kinds.INVALID,
            kinds.INTERNAL,
            *self.problems,
        }
        if self.body_type is not None:
            found |= {kinds.MALFORMED, kinds.BODY_TOO_LARGE, kinds.NOT_JSON}
        if self.takes:
            found |= {kinds.BODY_TOO_LARGE, kinds.NO_FILE}
        if secured and self.needs is not None:
            found |= {kinds.NO_KEY, kinds.FORBIDDEN, kinds.TOO_MANY_REQUESTS}
        return sorted(found)


def document(
    title: str, version: str, operations: Iterable[Operation], secured: bool
) -> dict[str, Any]:
    """The OpenAPI document. ``secured``: operations that need a key ask for one."""
    operations = list(operations)
    types = [type for operation in operations for _, type in operation.parameter_types]
    types += [type for operation in operations for type in operation.body_types]
    types.append(ProblemDocument)
    found, components = msgspec.json.schema_components(types, ref_template=REF)
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, Any] = {}
    for operation in operations:
        described = _described(operation, schemas, components, secured)
        described["responses"] = _answers(operation, schemas) | _problems(
            operation, schemas, secured
        )
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    _check_links(operations)
    result: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        result["components"]["securitySchemes"] = SECURITY_SCHEMES
    return result


def _described(
    operation: Operation, schemas: Mapping[Any, Any], components: Mapping[str, Any], secured: bool
) -> dict[str, Any]:
    """An operation without its answers."""
    result: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary}
    if operation.description:
        result["description"] = operation.description
    parameters = []
    for where, type in operation.parameter_types:
        fields = components[schemas[type]["$ref"].rpartition("/")[2]]
        for name, schema in fields["properties"].items():
            required = name in fields["required"]
            parameters.append({"name": name, "in": where, "required": required, "schema": schema})
    if parameters:
        result["parameters"] = parameters
    if operation.body_type is not None:
        content = {"application/json": {"schema": schemas[operation.body_type]}}
        result["requestBody"] = {"required": True, "content": content}
    if operation.takes:
        content = {name: {"schema": {"type": "string"}} for name in operation.takes}
        result["requestBody"] = {"required": True, "content": content}
    if secured and operation.needs is not None:
        result["security"] = [{scheme: [operation.needs]} for scheme in SECURITY_SCHEMES]
    return result


def _answers(operation: Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    """The answers of an operation where all went well."""
    result: dict[str, Any] = {}
    for status, type in operation.answers.items():
        phrase = HTTPStatus(status).phrase
        answer: dict[str, Any] = {"description": phrase, "headers": EVERY_ANSWER}
        if isinstance(type, str):
            answer["content"] = {type: {"schema": {"type": "string"}}}
        elif type is not None:
            answer["content"] = {"application/json": {"schema": schemas[type]}}
        if operation.links and type is not None:
            answer["links"] = {link.operation: _link(link) for link in operation.links}
        result[str(status)] = answer
    return result


def _link(link: Link) -> dict[str, Any]:
    result = {"operationId": link.operation, "parameters": dict(link.parameters)}
    return result if link.body is None else {**result, "requestBody": link.body}


def _problems(operation: Operation, schemas: Mapping[Any, Any], secured: bool) -> dict[str, Any]:
    """The answers of an operation where something went wrong."""
    content = {kinds.MEDIA_TYPE: {"schema": schemas[ProblemDocument]}}
    result: dict[str, Any] = {}
    for problem in operation.possible_problems(secured):
        line = f"{problem.title} (`{problem.uri}`)."
        answer = result.setdefault(str(problem.status), {"description": line, "content": content})
        if line not in answer["description"]:
            answer["description"] += f" {line}"
        answer["headers"] = EVERY_ANSWER | HEADERS.get(problem.status, {})
    return result


def _check_links(operations: list[Operation]) -> None:
    """A link to nowhere would only be noticed by those who follow it."""
    by_id = {operation.id: operation for operation in operations}
    for operation in operations:
        for link in operation.links:
            to = by_id.get(link.operation)
            if to is None:
                raise wrong("link.operation", link.operation, f"one of {', '.join(by_id)}")
            known = [
                name for _, type in to.parameter_types for name in type.__struct_encode_fields__
            ]
            for name in link.parameters:
                if name not in known:
                    raise wrong("link.parameters", name, f"one of {', '.join(known)} of {to.id}")
