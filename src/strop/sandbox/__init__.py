"""Code that a model wrote -> a verdict: run in closed boxes, on SandboxFusion's wire.

`isolation` finds how programs are closed in here and proves it, `box` is one such place and `agent` what
watches inside, `pool` keeps some ready, `slots` shares them out. `languages` is the table of languages,
`programs` compiles and runs, `judging` runs the cases of a submission, `app` answers over HTTP.
"""
