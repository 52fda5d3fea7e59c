"""The runtime's own keyword arguments, which follow the program's arguments in a call."""

from collections.abc import Mapping

Setting = Mapping[str, str | int]


def write(site: str, setting: Setting, native: str | None, encoding: str) -> str:
    """The runtime's keyword arguments as text, with characters that the file's encoding has."""
    text = f", site={_literal(site, encoding)}"
    for key, value in setting.items():
        text += f', {key}="{value}"' if isinstance(value, str) else f", {key}={value}"
    return text if native is None else f"{text}, native={native}"


def _literal(site: str, encoding: str) -> str:
    """A site id as a string literal."""
    try:
        site.encode(encoding)
    except UnicodeError:
        return ascii(site)
    return (
        f'"{site}"' if site.isprintable() and '"' not in site and "\\" not in site else repr(site)
    )
