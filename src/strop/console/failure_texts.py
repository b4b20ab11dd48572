"""What the server says when it refuses -> the same in Chinese, for the pages.

The API speaks English; who reads a page reads its language. A sentence that is not here is shown as the
server said it, and marked as that.
"""

from __future__ import annotations

import re
from functools import cache

from strop.console.words import Say

SENTENCES = {
    # what is not there
    "no job {job} in this database": "数据库中没有任务 {job}",
    "check the id, STROP_HOME and STROP_DATABASE_URL": "请检查 id、STROP_HOME 与 STROP_DATABASE_URL",
    "no file {file}": "没有文件 {file}",
    "upload it, or list the files and take an id from there": "请先上传，或从文件列表中取一个 id",
    "no function {function} is registered": "没有注册过函数 {function}",
    "register it and take the id from there": "请先注册函数，再使用返回的 id",
    "no function instance {instance}": "没有函数实例 {instance}",
    "bring the function online first": "请先让函数上线",
    "no deployment {deployment}": "没有部署 {deployment}",
    "there is no model {model}": "没有模型 {model}",
    "list the models and take a name from there": "请从模型列表中选择",
    "no checkpoint {checkpoint}": "没有检查点 {checkpoint}",
    "list the job's checkpoints and take an id from there": "请从任务的检查点列表中取一个 id",
    "job {job} has no trajectory {rollout}": "任务 {job} 没有轨迹 {rollout}",
    "job {job} has no trajectory {rollout} at step {step}": "任务 {job} 在第 {step} 步没有轨迹 {rollout}",
    "no key {key}": "没有密钥 {key}",
    "the blob store has lost {key}": "存储中已找不到 {key}",
    "upload it again": "请重新上传",
    # what cannot be done now
    "job {job} is {status}; only a job that has ended can be deleted":
        "任务 {job} 为 {status}；只能删除已结束的",
    "cancel it first": "请先取消",
    "job {job} is {status} and cannot be paused": "任务 {job} 处于 {status}，不能暂停",
    "job {job} is {status} and cannot become {other}": "任务 {job} 处于 {status}，不能变为 {other}",
    "from {status} it can go to: {ways}": "从 {status} 可以变为：{ways}",
    "job {job} is {status}; only a paused job can be resumed": "任务 {job} 为 {status}，只有暂停的任务可继续",
    "start a new job, with a published checkpoint's name as its model": "请以已发布的模型名为起点新建任务",
    "job {job} is a `strop run` of its own": "任务 {job} 由单独的 `strop run` 运行",
    "cancel it, or press Ctrl-C where it runs; strop run --resume continues it":
        "请取消它，或在运行它的终端按 Ctrl-C；之后可用 strop run --resume 继续",
    "the model {model} is deployed as {names}": "模型 {model} 正以 {names} 部署",
    "delete the deployment first": "请先删除该部署",
    "the model {model} is in the operator's table": "模型 {model} 属于管理员的模型表",
    "the model name {model} is taken": "模型名 {model} 已被占用",
    "choose another name, or remove that one first: strop models remove NAME":
        "请换一个名字，或先移除它：strop models remove 名称",
    "there is a deployment {deployment} already": "部署 {deployment} 已存在",
    "choose another suffix": "请换一个后缀",
    "deployment {deployment} is being deleted": "部署 {deployment} 正在删除",
    "a key named {key} exists already": "密钥 {key} 已存在",
    "choose another name, or revoke that one": "请换一个名字，或先吊销原来的密钥",
    "this is the key you signed in with": "这是你登录所用的密钥",
    "sign in with another one first": "请先用另一个密钥登录",
    "another file is being checked": "正在检查另一个文件",
    "repeat it in a moment": "请稍后再试",
    # what was sent
    "{key} cannot name a key": "{key} 不能作为密钥名",
    "take 1 to 100 characters": "请使用 1 到 100 个字符",
    "no file in the request": "请求中没有文件",
    "send it as the part `files`, with a file name": "请以带文件名的 `files` 字段发送",
    "empty: {names}": "空文件：{names}",
    "write at least one row": "至少要有一行",
    "{count} curves at once": "一次要了 {count} 条曲线",
    "ask for at most {count}": "每次最多 {count} 条",
    # who asks
    "the API key has been revoked": "API 密钥已吊销",
    "the API key does not belong to this server": "API 密钥无效：不属于此服务",
    "set DASHSCOPE_API_KEY to a key that `strop keys` made": "请使用 `strop keys` 创建的密钥",
    "this form does not belong to your session": "此表单不属于你的会话",
    "load the page again and repeat": "请刷新页面后重试",
    "this form was sent from another site": "此表单来自其他网站",
    "use the forms of this console": "请使用本控制台的表单",
    "this link has been used or is too old; sign in with an API key":
        "此链接已使用过或已过期；请用 API 密钥登录",
    "see the server's log": "请查看服务日志",
}  # fmt: skip
"""English, as the code says it with what it names in braces -> Chinese."""


_LISTS = frozenset({"ways", "names"})
"""What stands in their places may have blanks."""
_ONE, _ANY = r"'[^']*'|\"[^\"]*\"|\S+", r".*"


def translated(text: str, say: Say) -> str:
    """A refusal in the page's language; as it is, and marked, where there is no other."""
    if not text:
        return text
    for english, chinese in _patterns():
        found = english.fullmatch(text)
        if found is not None:
            return say(text, chinese.format_map(found.groupdict()))
    return say(text, f"{text}（服务原文）")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Those that name least first: `no file in the request` is no file's name."""
    ordered = sorted(SENTENCES, key=lambda english: (english.count("{"), -len(english)))
    return tuple((_pattern(english), SENTENCES[english]) for english in ordered)


def _pattern(english: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", english)
    text = "".join(
        f"(?P<{part}>{_ANY if part in _LISTS else _ONE})" if index % 2 else re.escape(part)
        for index, part in enumerate(parts)
    )
    return re.compile(text, re.DOTALL)
