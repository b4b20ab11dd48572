"""The control plane's services -> its pages: Jinja2 templates, htmx and ECharts, in English and Chinese.

The console stands on `server` and `store` and starts nothing of its own. What it does to jobs, files,
functions, models and deployments goes through the same functions as the API.
"""

from strop.console.app import Console, mount_console

__all__ = ["Console", "mount_console"]
