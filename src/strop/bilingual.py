"""The former form of `strop.locales`, for what still uses it."""

from strop.locales import FromOldStore, as_json, joined, languages, rendered

both = FromOldStore
chinese_of = as_json
LANGUAGES = languages()
__all__ = ["LANGUAGES", "both", "chinese", "chinese_of", "joined"]


def chinese(text: str) -> str:
    return str(rendered(text, "zh"))
