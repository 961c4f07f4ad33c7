// The charts that Flyte publishes, with their values; nothing is built of it.
module kfpytorch.test/flyte-charts

go 1.26.0

require github.com/flyteorg/flyte v1.16.8
