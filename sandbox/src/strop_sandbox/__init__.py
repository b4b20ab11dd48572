"""Code that a model wrote -> a verdict: run in closed boxes, behind SandboxFusion's HTTP API.

`isolation` finds how programs can be closed in on this machine and proves it, `box` is one such place and
`init` its process 1, `pool` keeps some ready, `slots` shares them out. `languages` is the table of languages,
`programs` compiles and runs, `judging` runs the cases of a submission, `app` answers over HTTP, `cli` is the
command. Importing this loads nothing.
"""

__version__ = "0.1.0"
