// Small programs for images without anything in them.
module kfpytorch.test/static

go 1.26.0
