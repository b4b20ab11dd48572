"""The wire of others, thin: each door maps names and forms to `service`."""
